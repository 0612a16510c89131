package spoke

import (
	"context"
	"log/slog"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// What happens to orders is logged after the commit that made it so, one line each.
// No line says what an order starts, what it is given or what it writes: whoever reads a
// log need not be whoever may read these. The audit has more.

// sayTaken logs what became of a batch of orders, which came over one connection. What
// came once more has its line already.
func (s *Spoke) sayTaken(ctx context.Context, batch []*store.Incoming) {
	if len(batch) == 0 {
		return
	}
	s.traceTaken(batch)
	if !s.Log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	hub := s.board.Name(batch[0].Conn)
	for _, m := range batch {
		switch {
		case m.Header.Kind == string(commands.StatusKind), m.Code == signing.ReplaySame:
		case m.Code == "":
			s.Log.InfoContext(ctx, "order taken", aboutOrder(m, hub)...)
		default:
			s.Log.InfoContext(ctx, "order refused", append(aboutOrder(m, hub), "code", m.Code)...)
		}
	}
}

// aboutOrder names an order that came from hub: of one kind are a kill and a cancel, a pause and a resume.
func aboutOrder(m *store.Incoming, hub string) []any {
	about := []any{"kind", m.Header.Kind}
	if b, ok := m.Body.(interface{ Word() string }); ok {
		about = append(about, "as", b.Word())
	}
	return append(about, "id", m.Task(), "connection", hub)
}

// sayStart logs and counts that an agent runs here.
func (s *Spoke) sayStart(ctx context.Context, r *run, start *backlog.Start) {
	if r.before {
		s.Log.InfoContext(ctx, "agent goes on", "id", r.fence.Task, "attempt", r.fence.Attempt, "pid", start.Pid)
		return
	}
	if !r.from.IsZero() {
		s.Counters.Started(time.Since(r.from))
		s.traceStart(r)
	}
	s.Log.InfoContext(ctx, "agent started", "id", r.fence.Task, "attempt", r.fence.Attempt, "pid", start.Pid, "isolation", start.Isolation)
}

// sayEnd logs and counts the end of an attempt.
func (s *Spoke) sayEnd(ctx context.Context, r *run, e backlog.End, held bool) {
	if !held {
		s.Log.WarnContext(ctx, "agent ended after it had lost its lease; its end does not count", "id", e.Fence.Task, "attempt", e.Fence.Attempt, "outcome", e.Outcome)
		return
	}
	s.Counters.Ended(string(e.Outcome))
	s.traceRun(r, e)
	if !s.Log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	about := []any{"id", e.Fence.Task, "attempt", e.Fence.Attempt, "outcome", e.Outcome}
	if e.Why != "" {
		about = append(about, "reason", e.Why)
	}
	s.Log.InfoContext(ctx, "agent ended", append(about, e.Exit.Logged()...)...)
}
