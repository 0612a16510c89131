package hub

import (
	"context"
	"slices"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/store"
)

// handlers say what the messages of spokes mean to a hub.
func (h *Hub) handlers() []federation.Handler {
	return []federation.Handler{
		{
			Kinds: []commands.Kind{commands.AcceptedKind, commands.RefusedKind, commands.StartedKind, commands.EndedKind,
				commands.KilledKind, commands.StateKind, commands.AskedKind, commands.AnsweredKind, commands.ResultKind},
			Take:  store.MoveMirrors(h.elsewhere),
			Taken: h.moved,
		},
		{Kinds: []commands.Kind{commands.LogKind}, Pass: h.keepOutput},
	}
}

// elsewhere returns who can run a spawn that a spoke has refused, and remembers that.
func (h *Hub) elsewhere(s *commands.Spawn, r store.Refusal) []store.Candidate {
	h.refusers.note(s, r)
	list, _ := h.candidates(s)
	return list
}

// moved wakes who waits for the tasks of a batch, and logs what became of them.
func (h *Hub) moved(ctx context.Context, batch []*store.Incoming) {
	for _, m := range batch {
		if r, ok := m.Body.(*commands.Result); ok && acted(m) && !r.Delivered() {
			h.Counters.Result(string(r.State), r.Reason == commands.RetriesExhausted)
		}
		if a, ok := m.Body.(*commands.Answered); ok && m.Code == "" {
			h.Counters.QuestionClosed(a.Outcome)
		}
		switch commands.Kind(m.Header.Kind) {
		case commands.AcceptedKind, commands.StartedKind:
			h.watch.notifyBegun(m.Task())
		default:
			h.watch.notify([]string{m.Task()})
		}
	}
	h.lacking.ended(batch)
	h.sayMoved(ctx, batch)
}

// acted reports whether a message has had its effect: a result that could not be read has ended its task.
func acted(m *store.Incoming) bool {
	return m.Code == "" || m.Unread && m.Code == m.Refusal.Code && !m.Late
}

// keepOutput stores pieces of output of tasks that the connection runs, and says
// what is on disk.
func (h *Hub) keepOutput(ctx context.Context, c store.Connection, batch []*store.Incoming) error {
	pieces := make([]*commands.Log, len(batch))
	for i, m := range batch {
		pieces[i] = m.Body.(*commands.Log)
	}
	stored, err := h.output.Append(ctx, c.ID, pieces)
	if err != nil {
		return err
	}
	tasks := make([]string, len(stored))
	for i, s := range stored {
		tasks[i] = s.Task
		if s.Code != "" {
			h.Log.DebugContext(ctx, "output was refused", "connection", c.Name, "id", s.Task, "attempt", s.Attempt, "stream", s.Stream, "code", s.Code)
		}
	}
	h.watch.notify(tasks)
	h.sendStored(ctx, c.ID, stored)
	return nil
}

// sendStored tells the spoke of a connection how much is here of its streams: it sends
// what comes after. A lost message costs a repetition.
func (h *Hub) sendStored(ctx context.Context, conn string, list []commands.StoredStream) {
	x := h.board.Exchange(conn)
	if x == nil {
		return
	}
	for some := range slices.Chunk(list, commands.MaxStored) {
		if err := x.Send(ctx, commands.QueueControl, federation.Note{Body: &commands.OutputStored{Streams: some}}); err != nil && ctx.Err() == nil {
			h.Log.DebugContext(ctx, "telling how much output is here", "conn", conn, "err", err)
		}
	}
}
