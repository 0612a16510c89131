package hub

import (
	"context"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/store"
)

// handlers say what the messages of spokes mean to a hub.
func (h *Hub) handlers() []federation.Handler {
	return []federation.Handler{
		{
			Kinds: []commands.Kind{commands.AcceptedKind, commands.RefusedKind, commands.StartedKind, commands.EndedKind,
				commands.KilledKind, commands.StateKind, commands.ResultKind},
			From:  store.Commands,
			Take:  store.MoveMirrorsOr(h.elsewhere),
			Taken: h.moved,
		},
		{Kinds: []commands.Kind{commands.LogKind}, From: store.Commands, Pass: h.keepOutput},
	}
}

// elsewhere returns who can run a spawn that a spoke has refused.
func (h *Hub) elsewhere(s *commands.Spawn) []store.Candidate {
	list, _ := candidates(h.board.Statuses(store.Commands), s)
	return list
}

// moved wakes who waits for the tasks of a batch, and the relays of what was
// ordered elsewhere.
func (h *Hub) moved(batch []*store.Incoming) {
	h.watch.notify(tasksOf(batch))
	for _, m := range batch {
		if conn, again := m.Effect.(string); again {
			h.board.Wake(conn)
		}
	}
}

func tasksOf(batch []*store.Incoming) []string {
	list := make([]string, 0, len(batch))
	for _, m := range batch {
		if t := store.TaskOf(m.Body); t != "" {
			list = append(list, t)
		}
	}
	return list
}

// keepOutput stores pieces of output of tasks that the connection runs.
func (h *Hub) keepOutput(ctx context.Context, c store.Connection, batch []*store.Incoming) error {
	list := make([]store.LogReport, len(batch))
	for i, m := range batch {
		list[i] = store.LogReport{Conn: c.ID, Log: m.Body.(*commands.Log)}
	}
	tasks, err := h.DB.AddLogs(ctx, list)
	if err != nil {
		return err
	}
	h.watch.notify(tasks)
	return nil
}
