package hub

import (
	"context"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// Archive leaves an agent that has ended out of lists, or shows it in them again.
func (h *Hub) Archive(ctx context.Context, text string, archive bool, actor string) (AgentView, error) {
	return h.change(ctx, text, func(task string) error { return h.DB.Archive(ctx, task, archive, actor) })
}

// ArchiveSome archives the oldest agents that the term fits, and says after which there may be more of them.
func (h *Hub) ArchiveSome(ctx context.Context, t store.ArchiveTerm, actor string) (n int, last string, err error) {
	if t.Older <= 0 && t.Labels.Empty() {
		return 0, "", commands.Refuse(commands.Validation, "neither an age nor labels say which agents to archive").Hinting("say how long ago they ended, or which labels they have")
	}
	return h.DB.ArchiveSome(ctx, t, actor)
}

// Label gives an agent labels, beside those that it has.
func (h *Hub) Label(ctx context.Context, text string, labels commands.Labels, actor string) (AgentView, error) {
	if len(labels) == 0 {
		return AgentView{}, commands.Refuse(commands.Validation, "no label is given").Hinting("give at least one, NAME=VALUE")
	}
	if err := labels.Check(); err != nil {
		return AgentView{}, err
	}
	return h.change(ctx, text, func(task string) error { return h.DB.Label(ctx, task, labels, actor) })
}

// change changes what the hub alone knows of an agent, and returns it as it is then.
func (h *Hub) change(ctx context.Context, text string, do func(task string) error) (AgentView, error) {
	m, err := h.Find(ctx, text)
	if err == nil {
		err = do(m.Task)
	}
	if err != nil {
		return AgentView{}, err
	}
	m, err = h.Find(ctx, m.Task)
	return viewOf(m), err
}
