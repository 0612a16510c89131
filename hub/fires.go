package hub

import (
	"context"
	"errors"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/cron"
	"github.com/spawnmesh/spawnmesh/store"
)

const (
	// schedulePeriod is how often the hub looks at least for schedules that are due: what another process has changed may
	// not be heard of.
	schedulePeriod = 30 * time.Second
	// scheduleBatch is how many schedules are looked up at a time.
	scheduleBatch = 100
	// spokesTime is how long a schedule that may run on any spoke waits for one: after it was due, and after a start of
	// the hub, whose spokes dial it.
	spokesTime = time.Minute
	// dueAgain is how often the hub looks while what is due waits: for a spoke, or for another process that has it.
	dueAgain = 2 * time.Second
)

// fireSchedules orders what schedules have whenever they are due.
func (h *Hub) fireSchedules(ctx context.Context) error {
	started := time.Now()
	for ctx.Err() == nil {
		next, err := h.DB.NextSchedule(ctx, schedulePeriod)
		if err == nil && next <= 0 {
			var any bool
			if any, err = h.fireDue(ctx, started); !any {
				next = dueAgain
			}
		}
		if err != nil && ctx.Err() == nil {
			h.Log.ErrorContext(ctx, "ordering what schedules have", "err", err)
			next = schedulePeriod
		}
		select {
		case <-ctx.Done():
		case <-h.schedule:
		case <-time.After(max(next, time.Millisecond)):
		}
	}
	return nil
}

// fireDue fires those that are due, and reports whether it did any.
func (h *Hub) fireDue(ctx context.Context, started time.Time) (any bool, failed error) {
	ids, err := h.DB.DueSchedules(ctx, scheduleBatch)
	if err != nil {
		return false, err
	}
	for _, id := range ids {
		fired, err := h.DB.Fire(context.WithoutCancel(ctx), id, func(s store.Schedule, values func() (commands.Values, error), now time.Time) store.Firing {
			f := h.firing(ctx, s, values, now, started)
			f.Later = spokesMayCome(now.Sub(*s.Next), time.Since(started)) && f.Order != nil && f.Order.Anywhere && len(f.Order.Among) == 0
			return f
		})
		if err != nil { // it would fail again: what became of it is that it did
			h.Log.ErrorContext(ctx, "ordering what a schedule has", "id", id, "err", err)
			fired, err = h.DB.Fire(context.WithoutCancel(ctx), id, func(s store.Schedule, _ func() (commands.Values, error), now time.Time) store.Firing {
				f := h.due(s, now, started)
				f.Refused = commands.Refuse(commands.Internal, "the order could not be stored; the log of the hub says why")
				return f
			})
		}
		if err != nil {
			failed = err
			continue
		}
		any = any || fired != nil
		h.sayFired(ctx, fired)
	}
	return any, failed
}

// spokesMayCome reports whether what has been due for a time waits for a spoke, at a hub that has run for another.
func spokesMayCome(due, ran time.Duration) bool { return due < spokesTime || ran < spokesTime }

// due says of a schedule that is due when it is due again. All that was missed is one.
func (h *Hub) due(s store.Schedule, now, started time.Time) store.Firing {
	f := store.Firing{Actor: "schedule:" + s.Name, Life: MaxLife,
		Kill: commands.Kill{Reason: "the schedule " + s.Name + " replaces it", GraceMS: DefaultGrace.Milliseconds()}}
	if table, err := cron.Parse(s.Cron, s.Zone); err != nil {
		f.Refused = commands.Refuse(commands.Internal, "%v", err)
	} else {
		until := missedUntil(s, now, now.Add(-time.Since(started)))
		f.Missed, f.Next = table.Missed(*s.Next, until), table.Next(until)
	}
	return f
}

// missedUntil is until when what was due of s was missed. While it waits for a spoke nothing is: what is due meanwhile is an
// order of its own.
func missedUntil(s store.Schedule, now, started time.Time) time.Time {
	began := *s.Next
	if started.After(began) {
		began = started
	}
	if s.Template.Any && now.Sub(began) < 2*spokesTime {
		return began
	}
	return now
}

// firing is what is to become of a schedule that is due.
func (h *Hub) firing(ctx context.Context, s store.Schedule, values func() (commands.Values, error), now, started time.Time) store.Firing {
	f := h.due(s, now, started)
	if f.Refused == nil {
		f.Order, f.Refused = h.orderFor(ctx, s, values, s.Next.UTC().Format(time.RFC3339), f.Actor)
	}
	return f
}

// orderFor is an order of a schedule. What tells it from its others is part of its idempotency key.
func (h *Hub) orderFor(ctx context.Context, s store.Schedule, values func() (commands.Values, error), which, actor string) (*store.SpawnOrder, *commands.Refused) {
	list, err := values()
	var order store.SpawnOrder
	if err == nil {
		t := s.Template
		order, err = h.orderOf(ctx, SpawnRequest{Spoke: t.Spoke, Any: t.Any, Spawn: *t.Spawn, Values: list, ExpiresInMS: t.LifeMS, Labels: t.Labels, IdempotencyKey: keyOf(s, which)}, actor)
	}
	if r, ok := errors.AsType[*commands.Refused](err); ok {
		return nil, r
	}
	if err != nil {
		return nil, commands.Refuse(commands.Internal, "%v", err)
	}
	order.Schedule = s.Name
	return &order, nil
}

func keyOf(s store.Schedule, which string) string {
	if which == "" {
		return ""
	}
	return "schedule/" + s.ID + "/" + which
}

// RunSchedule orders what a schedule has now. With a key, the same one orders it once.
func (h *Hub) RunSchedule(ctx context.Context, text, key, actor string) (*store.Fired, error) {
	if key != "" {
		key = "run/" + key
	}
	fired, err := h.DB.RunSchedule(context.WithoutCancel(ctx), text, func(s store.Schedule, values func() (commands.Values, error), _ time.Time) store.Firing {
		f := store.Firing{Actor: actor}
		f.Order, f.Refused = h.orderFor(ctx, s, values, key, actor)
		return f
	})
	if err == nil {
		h.noteOrders(ctx, []store.Ordered{fired.Ordered})
	}
	return fired, err
}

// sayFired logs and counts what became of a schedule that was due; nil is nothing. The first refusal with a code is a warning,
// those that follow it are not.
func (h *Hub) sayFired(ctx context.Context, f *store.Fired) {
	if f == nil {
		return
	}
	h.Counters.Fired(f.Outcome, max(0, f.At.Sub(*f.Due)))
	h.Log.InfoContext(ctx, "schedule was due", "schedule", f.Schedule.Name, "outcome", f.Outcome, "due", f.Due.UTC(), "missed", f.Missed, "code", f.Code)
	if was := f.Schedule.Outcome; f.Outcome == store.FireRefused && (was.Is != f.Outcome || was.Code != f.Code) {
		h.Log.WarnContext(ctx, "schedule is refused and orders nothing", "schedule", f.Schedule.Name, "code", f.Code)
	}
	if f.Killed != nil && f.Killed.Sent {
		h.sayOrder(ctx, commands.KillKind, f.Killed.Task, f.Killed.Spoke)
	}
	if f.Outcome == store.FireOrdered {
		h.noteOrders(ctx, []store.Ordered{f.Ordered})
	}
}
