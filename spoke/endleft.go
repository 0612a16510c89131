package spoke

import (
	"errors"
	"fmt"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// What is left of an attempt whose directory a disk does not give is looked for by its marker, its cgroup and its user. Without a cgroup
// what an agent with a user of its own has started is found by that user alone, which its directory tells.

// leftOf is what is known of an attempt, to end what is left of it. hidden is why nothing tells which user of its own it may have: then it
// is over once [isolation.Isolation.Idle] says so, too. An error says that nothing of it may be ended now.
func (s *Spoke) leftOf(r *run) (known supervisor.Known, hidden, err error) {
	known = supervisor.Known{Marker: s.marker(r.fence), BootID: r.bootID, Shim: r.shim}
	known.User, known.Former, hidden = s.usersOf(r)
	if hidden == nil || supervisor.OtherBoot(known) || r.level != "" && !commands.MeetsIsolation(r.level, commands.IsolationUser) {
		return known, nil, nil
	}
	grouped, err := supervisor.HasGroup(known)
	if err != nil {
		return known, nil, err
	}
	user, lives, err := supervisor.UserBelow(known)
	if grouped && (err != nil || user == 0) { // all of it is found without
		return known, nil, nil
	}
	if err == nil && user == 0 && lives { // nobody else knows what it has started
		err = fmt.Errorf("it ends with its lease: its shim lives, and the user of its agent cannot be told: %w", hidden)
	}
	if err != nil || user == 0 {
		return known, hidden, err
	}
	r.user, r.former = s.isolates.Keep(user)
	known.User, known.Former = r.user, r.former
	return known, nil, nil
}

// idle is [isolation.Isolation.Idle] for an attempt whose user is hidden, if it is.
func (s *Spoke) idle(hidden error) error {
	if hidden == nil {
		return nil
	}
	if err := s.isolates.Idle(); err != nil {
		return fmt.Errorf("%w (%w)", err, hidden)
	}
	return nil
}

// endLeft ends what is left of an attempt, and its shim. An error says that some of it may live.
func (s *Spoke) endLeft(r *run) error {
	known, hidden, err := s.leftOf(r)
	if err == nil {
		err = supervisor.End(known)
	}
	if err == nil {
		err = s.idle(hidden)
	}
	if err != nil {
		return fmt.Errorf("ending what is left of it: %w", err)
	}
	return nil
}

// isGone returns nil where nothing lives that may be of an attempt, or of a later one. Nothing is ended for it.
func (s *Spoke) isGone(r *run) error {
	known, hidden, err := s.leftOf(r)
	if err == nil && supervisor.Lives(known) {
		err = errors.New("it ends with its lease")
	}
	if err == nil {
		err = s.idle(hidden)
	}
	if err != nil {
		return fmt.Errorf("what may be the agent of attempt %d lives: %w", r.fence.Attempt, err)
	}
	return s.noneLater(r)
}

// noneLater returns nil where nothing lives that may be of an attempt after one: a restored database does not know all, nor does a disk that
// fails. Which users these would have is not known either.
func (s *Spoke) noneLater(r *run) error {
	later := map[string]int{}
	for n := r.fence.Attempt + 1; n <= maxAttempt; n++ {
		later[Marker(s.Keys.InstanceID(), r.fence.Task, n)] = n
	}
	n, err := supervisor.AnyLives(later)
	if err == nil && n != 0 {
		err = fmt.Errorf("what may be the agent of attempt %d lives: it ends with its lease", n)
	}
	if err == nil {
		err = s.isolates.Idle()
	}
	return err
}
