package hub

import (
	"context"
	"strings"

	"github.com/google/uuid"

	"github.com/spawnmesh/spawnmesh/store"
)

// named returns the id of the agent that text names; a whole id is taken as it is.
func (h *Hub) named(ctx context.Context, text string) (string, error) {
	task := strings.ToLower(text)
	if uuid.Validate(task) == nil && len(task) == len(uuid.Nil.String()) {
		return task, nil
	}
	m, err := h.Find(ctx, text)
	return m.Task, err
}

// await returns the mirror of a task once it differs from the state since, or ended, and as it
// was seen last when ctx ends before. Where it was not seen its id is empty.
func (h *Hub) await(ctx context.Context, task, since string) (m store.Mirror, err error) {
	news := h.watch.add(task, since == "")
	defer h.watch.remove(task, news)
	for {
		now, err := h.reads.Submit(ctx, task)
		if ctx.Err() != nil {
			return m, nil
		}
		if err != nil || now.Task == "" {
			return m, err
		}
		m = now
		if m.State.Terminal() || since != "" && string(m.State) != since {
			return m, nil
		}
		select {
		case <-ctx.Done():
			return m, nil
		case <-news:
		}
	}
}

// readAll returns the mirror of each task in one read, without an id where there is none.
func (h *Hub) readAll(ctx context.Context, tasks []string) ([]store.Mirror, error) {
	found, err := h.DB.MirrorsOf(ctx, tasks)
	if err != nil {
		return nil, err
	}
	byTask := make(map[string]store.Mirror, len(found))
	for _, m := range found {
		byTask[m.Task] = m
	}
	list := make([]store.Mirror, len(tasks))
	for i, task := range tasks {
		list[i] = byTask[task]
	}
	return list, nil
}
