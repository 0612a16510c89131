package spoke

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Description is what a spoke says about itself to its host.
type Description struct {
	KillLevel string       `json:"kill_level"`
	Isolation string       `json:"isolation"` // what agents are confined by; "" = none is started
	Held      policy.Found `json:"held"`      // which levels of isolation this host holds
	Policy    string       `json:"policy"`    // version in force
	Slots     int          `json:"slots"`
	Running   int          `json:"running"`
	Swept     time.Time    `json:"last_sweep_at"` // zero = not yet
}

// Describe returns what to say about this spoke, and how its links stand; nil
// before it works.
func (s *Spoke) Describe() (*Description, []control.Check) {
	if !s.working.Load() {
		return nil, nil
	}
	var links []control.Check
	for _, c := range s.board.Statuses(store.Obeys) {
		if c.State.Ended() {
			continue
		}
		links = append(links, checkLink(c))
	}
	return &Description{s.kernel.Level, s.isolation(), policy.FoundOf(s.isolates), s.Policy.Now().ID(), s.Slots, s.live.count(), s.lastSweep()}, slices.Concat(links, s.checkIsolation(), s.checkKernel(), s.checkLimits(), s.checkKills(), s.stuck.check())
}

// Running counts the attempts that have a slot.
func (s *Spoke) Running() int { return s.live.count() }

// Paused is how many of them stand still.
func (s *Spoke) Paused() int { return s.live.standStill() }

// checkLink says how a link stands. A suspension is somebody's decision, and no fault: by
// this side it leaves the link up.
func checkLink(c federation.Status) control.Check {
	var down error
	note := ""
	switch {
	case c.State == store.Suspended:
		note = fmt.Sprintf("suspended by %s: %s", c.By, c.Reason)
		if !c.Linked && c.Cause != nil {
			note += fmt.Sprintf("; down: %v", c.Cause)
		}
	case c.Says.State == string(store.Suspended):
		note = fmt.Sprintf("suspended by %s: %s", c.Name, c.Says.Reason)
	case !c.Linked && c.Cause != nil:
		down = commands.Refuse(commands.Unreachable, "down: %v", c.Cause)
	case !c.Linked:
		down = commands.Refuse(commands.Unreachable, "down")
	}
	check := control.NewCheck("link to "+c.Name, down)
	check.Note, check.Remote = note, true
	return check
}

// A HubView is a hub as the host of a spoke sees it.
type HubView struct {
	federation.Standing
	Grant     store.GrantTerms `json:"grant"`
	Running   int              `json:"running"`              // agents that it asked for
	Remote    string           `json:"remote"`               // where it is dialled
	LinkError string           `json:"link_error,omitempty"` // why the link is down
	Untold    bool             `json:"untold,omitempty"`     // it may not know that the connection has ended, and is told when it can be reached
}

// Hubs returns every connection with a hub, oldest first.
func (s *Spoke) Hubs(ctx context.Context) ([]HubView, error) {
	grants, err := s.DB.Grants(ctx)
	if err != nil {
		return nil, err
	}
	list, queues := make([]HubView, 0), s.board.Queues(ctx, store.Obeys)
	for _, c := range s.board.Statuses(store.Obeys) {
		v, err := s.viewOfHub(ctx, c, grants)
		if err != nil {
			return nil, err
		}
		v.Queues = queues[c.ID]
		list = append(list, v)
	}
	return list, nil
}

// Hub returns one of them.
func (s *Spoke) Hub(ctx context.Context, c federation.Status) (HubView, error) {
	grants, err := s.DB.Grants(ctx)
	if err != nil {
		return HubView{}, err
	}
	v, err := s.viewOfHub(ctx, c, grants)
	v.Queues = s.board.QueuesOf(ctx, c.Connection)
	return v, err
}

func (s *Spoke) viewOfHub(ctx context.Context, c federation.Status, grants map[string]store.GrantTerms) (HubView, error) {
	v := HubView{Standing: c.Standing, Grant: grants[c.ID], Running: s.live.countOf(c.ID), Remote: c.LinkURL, Untold: federation.MayHaveToTell(c.Connection)}
	if !c.Linked && c.Cause != nil {
		v.LinkError = c.Cause.Error()
	}
	if c.State.Ended() {
		return v, nil
	}
	v.Declines = append(declines(v.Grant, s.Policy.Now(), time.Now()), waits(s.ready.forHubs())...)
	held, err := s.DB.FrozenHere(ctx, c.ID)
	if held != nil {
		v.Frozen, v.FrozenScope = &held.Freeze, held.Scope
	}
	return v, err
}

// A GrantChange says what is to change of what a hub may ask for; nil stays.
type GrantChange struct {
	Kinds    *[]string  `json:"kinds"`
	Runtimes *[]string  `json:"runtimes"`
	Weight   *int       `json:"weight"`
	Expires  *time.Time `json:"expires"` // the zero time = never
}

// SetGrant changes what the hub of a connection may ask for here.
func (s *Spoke) SetGrant(ctx context.Context, conn string, change GrantChange, actor string) (store.GrantTerms, error) {
	g, err := s.DB.SetGrant(context.WithoutCancel(ctx), conn, actor, change.apply)
	s.work.Send()    // more may be started now,
	s.board.Reread() // and the hub learns what is not taken any more
	return g, err
}

func (c GrantChange) apply(g *store.GrantTerms) {
	if c.Kinds != nil {
		g.Kinds = *c.Kinds
	}
	if c.Runtimes != nil {
		g.Runtimes = *c.Runtimes
	}
	if c.Weight != nil {
		g.Weight = *c.Weight
	}
	if c.Expires != nil {
		if g.Expires = c.Expires; c.Expires.IsZero() {
			g.Expires = nil
		}
	}
}
