package spoke

import (
	"errors"
	"fmt"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// What is left of an attempt whose directory a disk does not give is looked for by its marker, its cgroup and its user. Without a cgroup
// what an agent with a user of its own has started is found by that user alone, which its directory tells.

// leftOf is what is known of an attempt, to end what is left of it. hidden says that it may have a user of its own which nothing tells: then it
// is over once [isolation.Isolation.Idle] says so, too.
func (s *Spoke) leftOf(r *run) (known supervisor.Known, hidden bool, err error) {
	known = supervisor.Known{Marker: s.marker(r.fence), BootID: r.bootID, Shim: r.shim}
	if known.User, known.Former = s.usersOf(r); known.User.ID != 0 || known.Former != 0 {
		return known, false, nil
	}
	if _, unread := exists(r.own().Home); unread == nil {
		return known, false, nil // and it is nobody's
	}
	grouped, err := supervisor.HasGroup(known)
	if err != nil || grouped {
		return known, false, err
	}
	first, last := s.isolates.Range()
	user, err := supervisor.UserBelow(known, first+1, last) // the first is no agent's
	if err != nil || user == 0 {
		return known, true, err
	}
	r.user = s.isolates.Keep(user)
	known.User = r.user
	return known, false, nil
}

// endLeft ends what is left of an attempt, and its shim. An error says that some of it may live.
func (s *Spoke) endLeft(r *run) error {
	known, hidden, err := s.leftOf(r)
	if err == nil {
		err = supervisor.End(known)
	}
	if err == nil && hidden {
		err = s.isolates.Idle()
	}
	if err != nil {
		return fmt.Errorf("ending what is left of it: %w", err)
	}
	return nil
}

// nextFew is how many attempts after one are looked for by what runs: a restored database does not know them, nor does a disk that fails.
const nextFew = 8

// isGone returns nil where nothing lives that may be of an attempt, or of one of the next few. Nothing is ended for it.
func (s *Spoke) isGone(r *run) error {
	anyHidden := false
	for n := range nextFew + 1 {
		f := backlog.Fence{Task: r.fence.Task, Attempt: r.fence.Attempt + n}
		known, hidden, err := s.leftOf(&run{fence: f, dir: s.attemptDir(f)})
		if err == nil && supervisor.Lives(known) {
			err = errors.New("it ends with its lease")
		}
		if err != nil {
			return fmt.Errorf("what may be the agent of attempt %d lives: %w", f.Attempt, err)
		}
		anyHidden = anyHidden || hidden
	}
	if !anyHidden {
		return nil
	}
	return s.isolates.Idle()
}
