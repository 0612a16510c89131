package hub

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/store"
)

// A SpokeView is a spoke as an operator sees it.
type SpokeView struct {
	federation.Standing
	Remote       string     `json:"remote,omitempty"` // host:port that it dials from
	Liveness     Liveness   `json:"liveness"`
	NextExpected *time.Time `json:"next_expected_at,omitempty"` // when its next heartbeat is due
	Slots        int        `json:"slots"`
	Running      int        `json:"running"`
	Queued       int        `json:"queued"`
	Capabilities []string   `json:"capabilities,omitempty"`
	KillLevel    string     `json:"kill_level,omitempty"`
	Isolation    string     `json:"isolation,omitempty"` // what agents are confined by that demand nothing, as it says, or [commands.IsolationUnmet]; "" = it does not say
	Version      string     `json:"version,omitempty"`
	Policy       string     `json:"policy,omitempty"`      // version of the policy that is in force there
	Stopping     bool       `json:"stopping,omitempty"`    // it waits for running agents to end, and starts nothing more
	StartsNone   string     `json:"starts_none,omitempty"` // why it starts nothing now, as it says
	LeaseMS      int64      `json:"lease_ms,omitempty"`    // how long its agents go on without it, as it says
	Unconfirmed  int        `json:"unconfirmed"`           // messages to it that its database has not confirmed
}

// A Settlement is what came of comparing the histories of a connection by hand.
type Settlement = federation.Settlement

// Spokes returns every connection with what is known of its spoke now.
func (h *Hub) Spokes(ctx context.Context) ([]SpokeView, error) {
	known, err := h.counted(ctx)
	if err != nil {
		return nil, err
	}
	list, queues := make([]SpokeView, 0), h.board.Queues(ctx, store.Commands)
	for _, s := range h.board.Statuses(store.Commands) {
		list = append(list, known.view(s, queues[s.ID]))
	}
	return list, nil
}

// SpokeOf returns one of them.
func (h *Hub) SpokeOf(ctx context.Context, s federation.Status) (SpokeView, error) {
	known, err := h.counted(ctx)
	return known.view(s, h.board.QueuesOf(ctx, s.Connection)), err
}

// counts are what the database counts of each connection.
type counts struct {
	unconfirmed, running map[string]int
	frozen               store.Freezes
}

func (h *Hub) counted(ctx context.Context) (c counts, err error) {
	if c.unconfirmed, err = h.DB.OutboxCounts(ctx); err == nil {
		c.running, err = h.DB.RunningCounts(ctx)
	}
	if err == nil {
		c.frozen, err = h.DB.Freezes(ctx)
	}
	return c, err
}

// view is the whole view of a spoke. Its agents have told that they started before its next
// heartbeat counts them; those of its other hubs are only in that.
func (c counts) view(s federation.Status, queues []federation.QueueView) SpokeView {
	v := ViewOf(s)
	v.Unconfirmed, v.Queues = c.unconfirmed[s.ID], queues
	if h := c.frozen.Holds(s.Connection); h != nil && !s.State.Ended() {
		v.Frozen, v.FrozenScope, v.FreezeUnheard = &h.Freeze, h.Scope, s.Heeds < h.Number
	}
	if s.Beat != nil {
		v.Running = max(v.Running, c.running[s.ID])
	}
	return v
}

// ViewOf describes the spoke of a connection as its last heartbeat does.
func ViewOf(s federation.Status) SpokeView {
	v := SpokeView{Standing: s.Standing, Remote: s.Remote, Liveness: NeverSeen}
	if s.State.Ended() {
		v.Liveness = Ended
	}
	b := s.Beat
	if b == nil {
		return v
	}
	v.Liveness = livenessOf(time.Since(b.At), b.Body.IntervalMS)
	next := b.At.Add(time.Duration(b.Body.IntervalMS) * time.Millisecond)
	v.NextExpected = &next
	v.Slots, v.Queued, v.Running = b.Body.Slots, b.Body.Queued, b.Body.Running
	v.Stopping, v.StartsNone, v.Declines = b.Body.Stopping, b.Body.StartsNone, b.Body.Declines
	v.Capabilities, v.KillLevel, v.Version, v.LeaseMS = b.Body.Capabilities, b.Body.KillLevel, b.Body.Version, b.Body.LeaseMS
	v.Policy, v.Isolation = b.Body.Policy, b.Body.Isolation
	return v
}

// candidates returns the spokes that can run a spawn now, as far as their last
// heartbeats say, and why the others cannot.
func (h *Hub) candidates(s *commands.Spawn) ([]store.Candidate, *commands.Refused) {
	var fit []store.Candidate
	var why, lacking []string
	later := "" // who could run it, were it here
	for _, p := range h.board.Statuses(store.Commands) {
		if p.State.Ended() {
			continue
		}
		v := ViewOf(p)
		missing := slices.DeleteFunc(slices.Clone(s.Capabilities), func(c string) bool { return slices.Contains(v.Capabilities, c) })
		if no := away(p, v); no != "" {
			why = append(why, p.Name+" "+no)
			if len(missing) == 0 || p.Beat == nil {
				later = cmp.Or(later, p.Name)
			}
			continue
		}
		if len(missing) > 0 {
			why, lacking = append(why, p.Name+" "+lacks(missing)), append(lacking, missing...)
			continue
		}
		if s.Runtime == commands.RuntimeExec && v.Isolation == commands.IsolationUnmet {
			why = append(why, p.Name+" cannot confine agents as its policy demands")
			continue
		}
		if unreviewed(p, s) {
			why = append(why, p.Name+" takes no reviews of this hub: the grant there lacks "+string(commands.ReviewKind))
			continue
		}
		b := p.Beat.Body
		fit = append(fit, store.Candidate{Conn: p.ID, Slots: b.Slots, Busy: b.Running + b.Queued, Age: time.Since(p.Beat.At),
			Last: b.StartsNone != "" || h.refusers.refuses(p.ID, b.Policy, s)})
	}
	switch {
	case len(why) == 0:
		return fit, commands.Refuse(commands.NoSpoke, "no spoke can run this now: no spoke is connected").Hinting("invite one").Running("invite", "--name", "NAME")
	case later != "":
		return fit, commands.Refuse(commands.NoSpoke, "no spoke can run this now: %s", strings.Join(why, "; ")).
			Hinting("to queue it for one that is away, name it: --spoke %s", later)
	}
	return fit, commands.Refuse(commands.NoSpoke, "no spoke can run this: %s", strings.Join(why, "; ")).
		Hinting("%s", less(lacking))
}

// lacks says what a spoke does not have.
func lacks(missing []string) string {
	var parts, levels []string
	for _, c := range missing {
		if by, ok := commands.IsolationBy(c); ok {
			levels = append(levels, by)
		} else {
			parts = append(parts, c)
		}
	}
	var says []string
	if len(parts) > 0 {
		says = append(says, "lacks "+strings.Join(parts, ", "))
	}
	if len(levels) > 0 {
		says = append(says, "does not confine agents by "+strings.Join(levels, " and "))
	}
	return strings.Join(says, " and ")
}

// less says what can be done where spokes are lacking something; nothing is, where they only
// cannot confine agents. A policy can offer capabilities, but no isolation.
func less(lacking []string) string {
	var hints []string
	for _, b := range brings {
		if slices.Contains(lacking, b.capability) {
			hints = append(hints, b.allow)
			lacking = slices.DeleteFunc(slices.Clone(lacking), func(c string) bool { return c == b.capability })
		}
	}
	if len(hints) > 0 && len(lacking) == 0 {
		return strings.Join(hints, "; ")
	}
	named := func(c string) bool { _, ok := commands.IsolationBy(c); return !ok }
	if slices.ContainsFunc(lacking, named) {
		hints = append(hints, "ask for less, or let the host of a spoke that has it offer it under capabilities in its policy.yaml")
	}
	if len(hints) == 0 || slices.ContainsFunc(lacking, func(c string) bool { return !named(c) }) {
		hints = append(hints, "on the host of a spoke, spawnmesh doctor says what it confines agents by, and what it lacks for more")
	}
	return strings.Join(hints, "; ")
}

// away says why nothing is ordered from a spoke now, whatever it is; "" = it can
// be.
func away(p federation.Status, v SpokeView) string {
	switch {
	case p.State != store.Active:
		return "is " + string(p.State)
	case !v.Linked:
		return "is not linked"
	case !v.Liveness.Heard():
		return "is linked and silent: " + string(v.Liveness)
	case v.Says.State != string(store.Active):
		return "says that it is " + v.Says.State
	case v.Stopping:
		return "is stopping"
	case v.Says.Refuses != nil:
		return "has ended the key that this hub signs with"
	}
	return ""
}
