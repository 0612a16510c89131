package hub

import (
	"context"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// Answer sends the answer to a question of an agent on a spoke, which decides whether it is the first.
func (h *Hub) Answer(ctx context.Context, q store.Question, answer, reason, actor string) error {
	a := commands.Answer{Task: q.Task, Question: q.ID, Answer: answer, Reason: reason, By: commands.Clean(actor, 200)}
	if err := a.Validate(); err != nil {
		return err
	}
	if err := h.DB.OrderAnswer(context.WithoutCancel(ctx), a); err != nil {
		return err
	}
	h.sayOrder(ctx, commands.AnswerKind, q.Task, q.Spoke)
	return nil
}
