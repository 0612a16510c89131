package hub

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/hub/cron"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// A NewSchedule is what an operator asks for.
type NewSchedule struct {
	Name, Cron, Zone, Overlap string // no zone is that of this host, no overlap is skip
	Order                     SpawnRequest
}

// CreateSchedule stores a schedule. What can be wrong with its order is refused now, and not when it is due; note says what
// would keep it from running now.
func (h *Hub) CreateSchedule(ctx context.Context, n NewSchedule, actor string) (s store.Schedule, note string, err error) {
	r := n.Order
	if r.ID != "" || r.IdempotencyKey != "" {
		return s, "", commands.Refuse(commands.Validation, "a schedule orders many agents, and its order has an id or an idempotency key").Hinting("leave them out: each of its orders gets its own")
	}
	n.Zone = cmp.Or(n.Zone, localZone())
	table, err := cron.Parse(n.Cron, n.Zone)
	if err != nil {
		return s, "", err
	}
	order, err := h.orderOf(ctx, r, actor)
	if err != nil {
		return s, "", err
	}
	if r.Spoke != "" { // by its name, which outlives the connection
		r.Spoke = h.board.Name(order.Conn)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return s, "", err
	}
	s = store.Schedule{ID: id.String(), Name: n.Name, Cron: strings.Join(strings.Fields(n.Cron), " "), Zone: n.Zone, Overlap: cmp.Or(n.Overlap, store.OverlapSkip), CreatedBy: actor,
		Template: store.Template{Spoke: r.Spoke, Any: r.Any, LifeMS: r.ExpiresInMS, Labels: r.Labels, Spawn: &n.Order.Spawn}}
	if err := h.DB.AddSchedule(context.WithoutCancel(ctx), s, r.Values, table.Next); err != nil {
		return s, "", err
	}
	h.schedule.Send()
	if s, err = h.DB.FindSchedule(ctx, s.ID); err == nil {
		note, err = h.hinders(ctx, order)
	}
	return s, note, err
}

// hinders says what would keep an order from being given or started now; "" where nothing is known.
func (h *Hub) hinders(ctx context.Context, o store.SpawnOrder) (string, error) {
	if o.Anywhere {
		if len(o.Among) == 0 && o.Nowhere != nil {
			return o.Nowhere.Why, nil
		}
		return "", nil
	}
	s, _ := h.board.Status(o.Conn)
	frozen, err := h.DB.Freezes(ctx)
	held := frozen.Holds(s.Connection)
	switch {
	case s.State == store.Active && held != nil:
		return fmt.Sprintf("%s is %s", s.Name, held.Why()), err
	case ungiven(s) != "":
		return ungiven(s), err
	case s.Beat != nil && h.refusers.refuses(o.Conn, s.Beat.Body.Policy, o.Spawn):
		return fmt.Sprintf("the policy of %s has refused this program", s.Name), err
	case s.Beat != nil && s.Beat.Body.StartsNone != "":
		return fmt.Sprintf("%s starts nothing now: %s", s.Name, s.Beat.Body.StartsNone), err
	}
	return "", err
}

// ungiven says why a spoke gets no order now; "" where it does.
func ungiven(s federation.Status) string {
	switch {
	case s.State != store.Active:
		return notActive(s.Connection)
	case s.Says.State == string(store.Suspended):
		return fmt.Sprintf("%s has suspended the connection: %s", s.Name, s.Says.Reason)
	case !s.Linked:
		return s.Name + " is not linked; it gets the order when it is"
	}
	return ""
}

// Connections are those over which this hub orders, ended ones too, the oldest first, for [OrdersNothing].
func (h *Hub) Connections() (all []store.Connection) {
	for _, v := range h.board.Statuses(store.Commands) {
		all = append(all, v.Connection)
	}
	return all
}

// OrdersNothing says why an active schedule can order nothing whenever it is due, as these connections, the oldest first, stand:
// that with its spoke has ended, or there is none with any spoke. "" where it can, and of one that is paused.
func OrdersNothing(s store.Schedule, all []store.Connection) string {
	if s.State != store.ScheduleActive {
		return ""
	}
	var ended *store.Connection
	for _, c := range all {
		named := s.Template.Spoke == "" || c.Name == s.Template.Spoke
		if c.Authority != store.Commands || !named {
			continue
		}
		if !c.State.Ended() {
			return ""
		}
		ended = &c
	}
	if ended == nil || s.Template.Spoke == "" {
		return "this hub has no spoke that could take the order"
	}
	return notActive(*ended)
}

// RefusedNow reports whether an active schedule that was refused last would be refused now, as these connections and freezes
// stand. What has another cause than these is taken to last.
func RefusedNow(s store.Schedule, all []store.Connection, frozen store.Freezes) bool {
	if s.State != store.ScheduleActive || s.Outcome.Is != store.FireRefused {
		return false
	}
	if s.Outcome.Code != commands.FrozenThere && s.Outcome.Code != signing.ConnState {
		return true
	}
	return !slices.ContainsFunc(all, func(c store.Connection) bool {
		named := s.Template.Spoke == "" || c.Name == s.Template.Spoke
		open := c.State == store.Active || c.State == store.Suspended
		return c.Authority == store.Commands && named && open && frozen.Holds(c) == nil
	})
}

// notActive says how a connection stands that is not active.
func notActive(c store.Connection) string {
	return fmt.Sprintf("the connection with %s is %s: %s", c.Name, c.State, c.Reason)
}

// localZone is the zone of this host by its IANA name, or UTC where it has none.
func localZone() string {
	name := time.Local.String()
	if target, err := os.Readlink("/etc/localtime"); err == nil && name == "Local" {
		_, name, _ = strings.Cut(filepath.ToSlash(target), "zoneinfo/")
	}
	if _, err := cron.Zone(name); err != nil {
		return "UTC"
	}
	return name
}

// A ScheduleChange changes what is not empty.
type ScheduleChange struct {
	Cron, Zone, Overlap, State string
	Reason                     string
}

// ChangeSchedule changes a schedule. It is due anew from now on, by what it says then, where that is changed.
func (h *Hub) ChangeSchedule(ctx context.Context, text string, c ScheduleChange, actor string) (store.Schedule, error) {
	c.Reason = strings.TrimSpace(c.Reason)
	if err := commands.CheckReason(c.Reason); err != nil {
		return store.Schedule{}, err
	}
	if c.State == store.SchedulePaused && c.Reason == "" {
		return store.Schedule{}, commands.Refuse(commands.Validation, "to pause a schedule needs a reason").Hinting("say why; it is shown with the schedule")
	}
	s, err := h.DB.ChangeSchedule(context.WithoutCancel(ctx), text, actor, func(s *store.Schedule, now time.Time) (action, why string, err error) {
		return c.apply(s, now, actor)
	})
	if err == nil {
		h.schedule.Send()
	}
	return s, err
}

// apply changes s. A pause of somebody stays whoever pauses it, too; one of this hub is that of who pauses it now.
func (c ScheduleChange) apply(s *store.Schedule, now time.Time, actor string) (action, why string, err error) {
	was := *s
	s.Cron, s.Zone = cmp.Or(strings.Join(strings.Fields(c.Cron), " "), s.Cron), cmp.Or(c.Zone, s.Zone)
	s.Overlap, s.State = cmp.Or(c.Overlap, s.Overlap), cmp.Or(c.State, s.State)
	table, err := cron.Parse(s.Cron, s.Zone)
	if err != nil {
		return "", "", err
	}
	switch s.State {
	case store.SchedulePaused:
		s.Next = nil
		switch {
		case was.State != s.State, c.State == s.State && store.Overrides(actor, was.PausedBy):
			s.Why, s.Restored, s.PausedBy = c.Reason, false, ""
			return "schedule.paused", c.Reason, nil
		case c.Cron == "" && c.Zone == "" && c.Overlap == "":
			return "", "", nil
		}
	case store.ScheduleActive:
		if was.State != s.State || was.Cron != s.Cron || was.Zone != s.Zone {
			s.Next, s.Why = new(table.Next(now)), ""
			s.Restored = false
		}
		if was.State != s.State {
			return "schedule.resumed", c.Reason, nil
		}
	default:
		return "", "", commands.Refuse(commands.Validation, "state %q is neither active nor paused", commands.Clip(s.State))
	}
	return "schedule.changed", strings.TrimPrefix(c.Reason+"; ", "; ") + s.Cron + " in " + s.Zone + ", overlap " + s.Overlap, nil
}

// Upcoming are the next times at which a schedule is due, at most n; none while it is paused.
func Upcoming(s store.Schedule, n int) (list []time.Time) {
	table, err := cron.Parse(s.Cron, s.Zone)
	if err != nil || s.Next == nil {
		return nil
	}
	for next := *s.Next; !next.IsZero() && len(list) < n; next = table.Next(next) {
		list = append(list, next)
	}
	return list
}
