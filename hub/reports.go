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
			Take:  store.MoveMirrors,
			Taken: func(batch []*store.Incoming) { h.watch.notify(tasksOf(batch)) },
		},
		{Kinds: []commands.Kind{commands.LogKind}, From: store.Commands, Pass: h.keepOutput},
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
