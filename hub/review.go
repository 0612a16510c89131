package hub

import (
	"context"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
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
	if !w.Own {
		if err := h.isOfAnother(ctx, m, actor); err != nil {
			return AgentView{}, err
		}
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

// isOfAnother refuses whom an agent was ordered by, also by way of a schedule. Where nobody knows who that was an owner reviews it.
func (h *Hub) isOfAnother(ctx context.Context, m store.Mirror, actor string) error {
	by := m.CreatedBy
	if m.Schedule != "" && by != actor {
		s, err := h.DB.FindSchedule(ctx, m.Schedule)
		if err != nil && commands.CodeOf(err) != commands.NotFound {
			return err
		}
		if by = s.CreatedBy; s.CreatedAt.After(m.CreatedAt) {
			by = "" // another one of this name
		}
	}
	switch by {
	case actor:
		return commands.Refuse(commands.Forbidden, "%s has ordered agent %s, and does not review it", actor, m.ShortID).Hinting("somebody else does, or an owner of this hub")
	case "", store.Adopted:
		return commands.Refuse(commands.Forbidden, "this hub does not know who has ordered agent %s", m.ShortID).Hinting("an owner of this hub reviews it")
	}
	return nil
}
