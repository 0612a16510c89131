package spoke

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/spoke/isolation"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// isolate tries out what keeps agents from this host. What does not hold is no fault until the
// policy demands it.
func (s *Spoke) isolate(ctx context.Context) {
	s.isolates = isolation.Open(s.Dir, s.Policy.Now().AgentUsers)
	if before, why := s.isolates.Before(); before != 0 {
		first, _ := s.isolates.Range()
		attrs := []any{"first", first, "before", before}
		if why != nil {
			attrs = append(attrs, "err", why)
		}
		s.Log.WarnContext(ctx, "agents have other users than before: those are another instance's now, or the policy names others; agents that still run as them end as any other", attrs...)
	}
	s.Policy.Isolates(s.isolates)
	if _, err := s.Policy.Now().Level(); err != nil {
		s.sayUnmet(ctx, err)
	}
	s.sayUnconfined(ctx)
}

// betweenProbes is how long a level that a fault of this host has kept from being tried out waits for the next try, at first and at most.
const (
	betweenProbes     = 30 * time.Second
	mostBetweenProbes = 10 * time.Minute
)

// tryLevels tries out, until ctx ends, the levels that a fault of this host has kept from it.
func (s *Spoke) tryLevels(ctx context.Context) error {
	for pause := betweenProbes; len(s.isolates.Untried()) > 0; pause = min(2*pause, mostBetweenProbes) {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		if hold := s.isolates.TryAgain(ctx); len(hold) > 0 {
			s.Log.InfoContext(ctx, "levels of isolation hold that could not be tried out before", "levels", hold, "isolation", cmp.Or(s.isolation(), commands.IsolationUnmet))
			s.board.Beat()
			s.work.Send()
		}
	}
	return nil
}

// sayUnmet logs why no agent is started: at the start, and where an order is refused for it.
func (s *Spoke) sayUnmet(ctx context.Context, err error) {
	s.Log.ErrorContext(ctx, "agents cannot be confined as the policy demands; none is started", "err", err)
}

// sayUnconfined logs that agents have the spoke's own user, under a policy that begins to hold.
func (s *Spoke) sayUnconfined(ctx context.Context) {
	if s.isolation() == commands.IsolationNone {
		s.Log.WarnContext(ctx, "agents are not kept from this host: the policy says isolation: none", "root", s.isolates.Root())
	}
}

// isolation names what agents are confined by now; "" = none is started.
func (s *Spoke) isolation() string {
	level, err := s.Policy.Now().Level()
	if err != nil {
		return ""
	}
	return level
}

// confine gives an attempt that is about to start what its agent is confined by.
func (s *Spoke) confine(r *run, rules *policy.Policy, n *policy.Named) (supervisor.Confine, error) {
	if r.level == commands.IsolationNone {
		return supervisor.Confine{}, nil
	}
	paths, err := rules.Paths(&r.spec, r.level, n)
	if err != nil {
		return supervisor.Confine{}, fmt.Errorf("confining the agent: %w", err)
	}
	c, err := s.isolates.Take(r.level, r.own(), isolation.Reach(paths))
	r.user = c.User
	return c, err
}

// userOf finds the user of an attempt that an earlier process started. The error says that it cannot be told now.
func (s *Spoke) userOf(r *run) (user supervisor.User, err error) {
	r.user, err = s.isolates.Find(r.own().Home)
	return r.user, err
}

// usersOf is the user of an attempt that this process gave it, also where the directories are gone that say so, or an earlier process; or
// else the one that it may have had from an earlier range: what is left of it may run as that. The error says that it cannot be told now.
func (s *Spoke) usersOf(r *run) (user supervisor.User, former int64, err error) {
	if r.user.ID != 0 || r.former != 0 {
		return r.user, r.former, nil
	}
	if user, err = s.userOf(r); err == nil && user.ID == 0 {
		former, err = s.isolates.Former(r.own())
	}
	return user, former, err
}

// release takes back the user of an attempt that is over. One that goes on without this
// process keeps it, and so does one of which something is left. What is another's stays as it is.
func (s *Spoke) release(r *run) {
	if !r.mine.Load() {
		return
	}
	s.shutDoor(r)
	if r.over {
		s.removeSecrets(r.dir)
		s.giveBack(r)
		s.isolates.Ended(r.user, r.former)
		r.user = supervisor.User{}
	}
}

// reclaim takes back the user of an attempt that is known to be over, should an earlier process have
// ended before it did. That this process does not attend to it proves nothing: after a restore from a
// backup an agent goes on that is adopted when its hub says so again.
func (s *Spoke) reclaim(dir string) {
	r := &run{dir: dir}
	if !s.isOver(r) {
		return
	}
	s.removeSecrets(dir)
	s.removeDoor(dir)
	s.giveBack(r)
}

// giveBack takes back the user of an attempt that is over, with its directories; where a disk does not tell which that is, at a later sweep.
func (s *Spoke) giveBack(r *run) {
	user := r.user
	if user.ID == 0 {
		found, err := s.userOf(r)
		if err != nil {
			return
		}
		if s.isolates.Releases(found.ID, r.own()) {
			return // its directories are the last to be taken back: they tell who it is until then
		}
		if !s.isolates.Gave(found.ID) { // to another one, while a disk did not tell that this one had it
			user = found
		}
	}
	s.isolates.Release(user, r.own())
}

// isOver reports whether an attempt is known to be over: its end is recorded, or nothing of it is left. For the
// latter all processes of this host are read, so only where something is to be taken back.
func (s *Spoke) isOver(r *run) bool {
	if supervisor.CheckOver(r.control()) == nil {
		return true
	}
	user, err := r.own().User()
	if err != nil {
		return false
	}
	if user == 0 {
		if secrets, err := exists(filepath.Join(r.own().Home, secretsDir)); !secrets && err == nil {
			return false
		}
	}
	return supervisor.CheckGone(r.control(), supervisor.Known{Marker: s.markerAt(r.dir), User: supervisor.User{ID: user}}) == nil
}

// sayKept logs which users of agents that are over are not given to others.
func (s *Spoke) sayKept(ctx context.Context) {
	kept := map[string]error{}
	for id, err := range s.isolates.Kept() {
		kept[strconv.FormatInt(id, 10)] = err
	}
	for id, err := range s.kept.set(kept) {
		s.Log.WarnContext(ctx, "the user of an agent is not given to another one", "user", id, "err", err)
	}
}

// checkIsolation is what doctor says about what agents are confined by.
func (s *Spoke) checkIsolation() []control.Check {
	rules := s.Policy.Now()
	level, err := rules.Level()
	check := control.NewCheck("isolation", err)
	bubble := control.Check{Name: "bubble", OK: true}
	if level, err := rules.Bubble(); err == nil {
		bubble.Note = level + ", for the orders that ask for it"
	} else {
		bubble.Note = "none: " + err.Error()
	}
	if err != nil {
		return []control.Check{check, bubble}
	}
	check.Note = level
	if first, last := s.isolates.Range(); commands.MeetsIsolation(level, commands.IsolationUser) {
		check.Note += fmt.Sprintf(", users %d to %d", first, last)
	}
	if level == commands.IsolationNone {
		check.Note = "none: agents reach all that the spoke's own user reaches, as the policy says"
		if s.isolates.Root() {
			check.Note = "WARNING: agents run as root and reach all of this host, as the policy says: isolation: none, allow_root_agents: true"
		}
	}
	checks := []control.Check{check, bubble}
	if left := rules.LeftOut(); len(left) > 0 {
		checks = append(checks, control.Check{Name: "paths of the policy", Problem: "no agent reaches " + strings.Join(left, ", ") + ": there is a link on the way which an agent can have made, out of what agents may write; remove it, or list where it leads"})
	}
	kept := s.isolates.Kept()
	if len(kept) == 0 {
		return checks
	}
	first := slices.Min(slices.Collect(maps.Keys(kept)))
	return append(checks, control.Check{Name: "users of agents", Problem: fmt.Sprintf("%d are kept although their agents are over; of %d: %v; it is tried again every 10 s", len(kept), first, kept[first])})
}
