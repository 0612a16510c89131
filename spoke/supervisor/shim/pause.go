package shim

import "github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"

// pause lets the tree stand still, or go on, and tells that. What is said again is done again: processes may have
// been continued, or have come since.
func (s *shim) pause(on bool) {
	p, now := s.run.Pause, attempt.Boottime()
	p.Problem = ""
	if on {
		whole, err := s.tree.Pause()
		if p.Partly = err != nil || !whole; p.Since == 0 {
			p.Since = now
		}
		s.tellPause(p)
		return
	}
	switch err := s.tree.Resume(); {
	case err != nil:
		p.Problem = err.Error()
	case p.Since != 0:
		p = attempt.Pause{Stood: p.Total(now)}
		s.heard.now()
	}
	s.tellPause(p)
}
