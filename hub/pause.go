package hub

import (
	"context"

	"github.com/spawnmesh/spawnmesh/commands"
)

// Pause orders that an agent stands still, or goes on. It is recorded at once, and obeyed when its spoke is back where
// that cannot be reached. What was said before it counts no more.
func (h *Hub) Pause(ctx context.Context, text string, p commands.Pause, actor string) (AgentView, error) {
	m, err := h.Find(ctx, text)
	if err != nil {
		return AgentView{}, err
	}
	if err := commands.CheckReason(p.Reason); err != nil {
		return AgentView{}, err
	}
	p.Task = m.Task
	if err := h.DB.OrderPause(context.WithoutCancel(ctx), p, MaxLife, actor); err != nil {
		return AgentView{}, err
	}
	h.sayOrder(ctx, commands.PauseKind, m.Task, m.Spoke)
	m, err = h.Find(ctx, m.Task)
	return viewOf(m), err
}
