package spoke

import (
	"fmt"

	"github.com/spawnmesh/spawnmesh/internal/control"
)

// checkKills is what doctor says of agents that do not end although they were killed.
func (s *Spoke) checkKills() []control.Check {
	problem, n := "", 0
	for _, r := range s.live.list() {
		left := s.live.survivorsOf(r.fence.Task)
		if len(left) == 0 {
			continue
		}
		if n++; problem == "" {
			p := left[0]
			problem = fmt.Sprintf("of %s process %d (%s) is in state %s at %q; %d processes in all", r.fence.Task, p.Pid, p.Command, p.State, p.Wchan, len(left))
		}
	}
	if n == 0 {
		return nil
	}
	return []control.Check{{Name: "kill_incomplete", Problem: fmt.Sprintf("%d agents do not end although they were killed: %s; they keep their slots and users, and the kill is repeated every 10 s. State D waits for a disk or a network file system: mend that", n, problem)}}
}
