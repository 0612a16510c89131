package hub

import (
	"context"

	"github.com/spawnmesh/spawnmesh/commands"
)

// A ReviewWord is what somebody says of what an agent has delivered.
type ReviewWord struct {
	commands.Review
	Own bool // who says it may review what they have ordered
}

// Review stores what somebody has decided about what an agent has delivered, and sends it to its spoke.
func (h *Hub) Review(ctx context.Context, text string, w ReviewWord, actor string) (AgentView, error) {
	m, err := h.Find(ctx, text)
	if err != nil {
		return AgentView{}, err
	}
	v := w.Review
	v.Task, v.By = m.Task, commands.Clean(actor, 200)
	if err := v.Validate(); err != nil {
		return AgentView{}, err
	}
	if m.CreatedBy == actor && !w.Own {
		return AgentView{}, commands.Refuse(commands.Forbidden, "%s has ordered agent %s, and does not review it", actor, m.ShortID).Hinting("somebody else does, or an owner of this hub")
	}
	_, before, err := h.DB.OrderReview(context.WithoutCancel(ctx), v)
	if err != nil {
		return AgentView{}, err
	}
	if !before {
		h.sayOrder(ctx, commands.ReviewKind, m.Task, m.Spoke)
		h.watch.notify([]string{m.Task})
	}
	m, err = h.Find(ctx, m.Task)
	return viewOf(m), err
}
