package hub

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Killed is an agent after a kill, which may have ended it by now.
type Killed struct {
	store.Mirror
	Hub     string `json:"hub,omitempty"` // who ordered the agent, on its host
	Ordered bool   `json:"kill_ordered"`  // false: it had ended before, and the kill changed nothing
}

// Kill stores an order to kill or to cancel. For an agent that has ended it changes
// nothing and returns the outcome that is there.
func (h *Hub) Kill(ctx context.Context, text string, k commands.Kill, actor string) (Killed, error) {
	m, err := h.Find(ctx, text)
	if err != nil {
		return Killed{Mirror: m}, err
	}
	k.Task = m.Task
	if err := k.Validate(); err != nil {
		return Killed{Mirror: m}, err
	}
	ordered, err := h.DB.OrderKill(context.WithoutCancel(ctx), k, MaxLife, actor)
	if err != nil {
		return Killed{Mirror: m}, err
	}
	if ordered {
		h.sayOrder(ctx, commands.KillKind, m.Task, m.Spoke)
	}
	m, err = h.Find(ctx, m.Task)
	return Killed{Mirror: m, Ordered: ordered}, err
}

// AskStatus sends a status command to the spoke of an agent and waits for its signed
// answer for as long as ctx allows.
func (h *Hub) AskStatus(ctx context.Context, text, actor string) (*commands.TaskState, error) {
	m, err := h.Find(ctx, text)
	if err != nil {
		return nil, err
	}
	news := h.watch.add(m.Task, false)
	defer h.watch.remove(m.Task, news)
	question, err := h.DB.OrderStatus(ctx, m.Task, time.Hour, actor)
	if err != nil {
		return nil, err
	}
	for {
		state, err := h.answer(ctx, m, question)
		if state != nil || err != nil {
			return state, err
		}
		select {
		case <-ctx.Done():
			return nil, commands.Refuse(commands.Unreachable, "%s has not answered yet", m.Spoke).Hinting("see").Running("connections", "list")
		case <-news:
		}
	}
}

func (h *Hub) answer(ctx context.Context, m store.Mirror, question string) (*commands.TaskState, error) {
	envelope, err := h.DB.Answered(ctx, question)
	if err != nil || envelope == nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, nil
		}
		return nil, err
	}
	c, err := h.board.Read(m.Conn, envelope)
	if err != nil {
		return nil, fmt.Errorf("reading the answer of %s: %w", m.Spoke, err)
	}
	switch b := c.Body.(type) {
	case *commands.TaskState:
		return b, nil
	case *commands.RefusedBody:
		return nil, refusalOf(m.Spoke, b)
	}
	return nil, fmt.Errorf("%s answered a status command with %s", m.Spoke, c.Body.Kind())
}

// refusalOf returns the refusal of a spoke, its words marked as the spoke's own.
func refusalOf(spoke string, b *commands.RefusedBody) *commands.Refused {
	said := commands.Refuse(b.Code, "%s says: %s", spoke, b.Why)
	if b.Hint != "" {
		said.Hint = spoke + " says: " + b.Hint
	}
	return said
}
