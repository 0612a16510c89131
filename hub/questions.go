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

// Progress adds to an agent what it has said of its progress last, as the newest heartbeat of its spoke tells it.
func (h *Hub) Progress(v *AgentView) {
	if v.State != commands.Running && v.State != commands.AwaitingInput {
		return
	}
	for _, s := range h.board.Statuses(store.Commands) {
		if s.ID != v.Conn || s.Beat == nil {
			continue
		}
		for _, a := range s.Beat.Body.Agents {
			if a.Task == v.Task && a.Attempt == v.Attempt {
				v.Progress = a.Progress
			}
		}
	}
}
