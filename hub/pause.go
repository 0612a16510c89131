package hub

import (
	"context"
	"encoding/json"

	"github.com/spawnmesh/spawnmesh/commands"
)

// Pause orders that an agent stands still, or goes on. It is recorded at once, and obeyed when its spoke is back where
// that cannot be reached. What was said before it counts no more. The answer has the agent as the order found it, which tells what word
// that has overruled: its spoke may take it before the answer is made.
func (h *Hub) Pause(ctx context.Context, text string, p commands.Pause, actor string) (AgentView, error) {
	m, err := h.Find(ctx, text)
	if err != nil {
		return AgentView{}, err
	}
	if err := commands.CheckReason(p.Reason); err != nil {
		return AgentView{}, err
	}
	p.Task = m.Task
	state, ordered, err := h.DB.OrderPause(context.WithoutCancel(ctx), p, MaxLife, actor)
	if err != nil {
		return AgentView{}, err
	}
	h.sayOrder(ctx, commands.PauseKind, m.Task, m.Spoke)
	if m, err = h.Find(ctx, m.Task); err != nil {
		return AgentView{}, err
	}
	if m.State.Terminal() { // meanwhile, and all else of it is of now
		return viewOf(m), nil
	}
	m.State = state
	m.Pause, err = json.Marshal(ordered)
	return viewOf(m), err
}
