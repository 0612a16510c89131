package hub

import (
	"context"
	"log/slog"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// What happens to orders is logged after the commit that made it so, one line each and
// under the names that spokes have for it. No line says what an order starts, what it is
// given or what it writes: whoever reads a log need not be whoever may read these. The
// refusals of a spoke and the audit have the reasons in words.

// noteOrders logs and counts which spawns of a round were given.
func (h *Hub) noteOrders(ctx context.Context, list []store.Ordered) {
	given, says := 0, h.Log.Enabled(ctx, slog.LevelInfo)
	for _, o := range list {
		if o.Err != nil || o.Existing {
			continue
		}
		if given++; says {
			h.sayOrder(ctx, commands.SpawnKind, o.Task, o.Spoke)
		}
	}
	h.Counters.Ordered(given)
}

// sayOrder logs an order that will reach its spoke.
func (h *Hub) sayOrder(ctx context.Context, kind commands.Kind, task, spoke string) {
	h.Log.InfoContext(ctx, "order given", "kind", kind, "id", task, "connection", spoke)
}

// sayMoved logs what a batch of reports, which came over one connection, has told anew.
func (h *Hub) sayMoved(ctx context.Context, batch []*store.Incoming) {
	if len(batch) == 0 || !h.Log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	spoke := h.board.Name(batch[0].Conn)
	for _, m := range batch {
		if !acted(m) || m.Late {
			continue
		}
		question, other := m.Effect.(commands.Kind)
		switch b, refusal := m.Body.(*commands.RefusedBody); {
		case refusal && !other:
			h.sayRefusal(ctx, m, b, spoke)
		case refusal && (question == commands.KillKind || question == commands.AnswerKind || question == commands.PauseKind || question == commands.ReviewKind):
			h.Log.InfoContext(ctx, "order refused", "kind", question, "id", b.Task, "connection", spoke, "code", b.Code)
		case !other:
			h.sayReport(ctx, m, spoke)
		}
	}
}

// sayRefusal logs that a spoke does not run an order, and who has it then.
func (h *Hub) sayRefusal(ctx context.Context, m *store.Incoming, b *commands.RefusedBody, spoke string) {
	next, again := m.Effect.(*store.Elsewhere)
	task := b.Task
	if again {
		task = next.Task
	}
	h.Log.InfoContext(ctx, "order refused", "kind", commands.SpawnKind, "id", task, "connection", spoke, "code", b.Code)
	if again {
		h.sayOrder(ctx, commands.SpawnKind, task, h.board.Name(next.Conn))
	}
}

func (h *Hub) sayReport(ctx context.Context, m *store.Incoming, spoke string) {
	switch b := m.Body.(type) {
	case *commands.Started:
		h.Log.InfoContext(ctx, "agent started", "id", b.Task, "connection", spoke, "attempt", b.Attempt, "isolation", b.Isolation)
	case *commands.Ended:
		about := because([]any{"id", b.Task, "connection", spoke, "attempt", b.Attempt, "outcome", b.Outcome, "state", b.State}, b.Reason)
		h.Log.InfoContext(ctx, "agent ended", append(about, b.Exit.Logged()...)...)
	case *commands.Question:
		h.Log.InfoContext(ctx, "agent asks", "id", b.Task, "connection", spoke, "attempt", b.Attempt, "question", commands.ShortID(b.Question))
	case *commands.TaskState:
		about := []any{"id", b.Task, "connection", spoke, "attempt", b.Attempt, "state", b.State}
		switch {
		case b.State == commands.InReview, b.State == commands.Approved, b.Reason == commands.MergeConflict:
			h.Log.InfoContext(ctx, "agent reviewed", about...)
		case b.State == commands.Paused:
			h.Log.InfoContext(ctx, "agent paused", about...)
		case b.Reason == commands.CancelRequested:
			h.Log.InfoContext(ctx, "agent cancelled, and may finish", about...)
		default:
			h.Log.InfoContext(ctx, "agent resumed", about...)
		}
	case *commands.Answered:
		h.Log.InfoContext(ctx, "question closed", "id", b.Task, "connection", spoke, "question", commands.ShortID(b.Question), "outcome", b.Outcome)
	case *commands.Result:
		if b.Delivered() {
			h.Log.InfoContext(ctx, "agent waits for its review", "id", b.Task, "connection", spoke, "attempt", b.Attempt)
			return
		}
		h.sayResult(ctx, b, spoke)
	}
}

// sayResult logs the end of an order by the word of its spoke. How long it took since its
// agent had started first, the clock of the spoke says.
func (h *Hub) sayResult(ctx context.Context, r *commands.Result, spoke string) {
	about := because([]any{"id", r.Task, "connection", spoke, "attempt", r.Attempt, "state", r.State}, r.Reason)
	if r.Outcome != "" {
		about = append(about, r.Exit.Logged()...)
	}
	if r.StartedAt > 0 {
		about = append(about, "duration_ms", max(r.EndedAt-r.StartedAt, 0)) // a clock may have been set back in between
	}
	h.Log.InfoContext(ctx, "order ended", about...)
}

// because adds the reason, where there is one.
func because(about []any, r commands.Reason) []any {
	if r == "" {
		return about
	}
	return append(about, "reason", r)
}

// sayUnanswered logs orders that ended because nobody answered them.
func (h *Hub) sayUnanswered(ctx context.Context, list []store.Unanswered) {
	for _, o := range list {
		h.Log.InfoContext(ctx, "order ended", "id", o.Task, "connection", o.Spoke, "state", o.State, "reason", o.Reason)
	}
}
