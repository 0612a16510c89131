package hub

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/store"
)

// Defaults and bounds of an order.
const (
	DefaultLife  = 24 * time.Hour // how long a spoke may still start what was ordered
	MaxLife      = 7 * 24 * time.Hour
	DefaultGrace = 10 * time.Second
)

// A SpawnRequest is what an operator asks for.
type SpawnRequest struct {
	ID             string         `json:"id,omitempty"` // chosen by the caller, or by the hub
	Spoke          string         `json:"spoke,omitempty"`
	Any            bool           `json:"any,omitempty"`
	Spawn          commands.Spawn `json:"spawn"`
	ExpiresInMS    int64          `json:"expires_in_ms,omitempty"`
	IdempotencyKey string         `json:"idempotency_key,omitempty"`
}

// A SpawnAnswer says what was stored. Existing tells that it was there before.
type SpawnAnswer struct {
	ID       string `json:"id"`
	Spoke    string `json:"spoke"`
	Existing bool   `json:"existing,omitempty"`
}

// Spawn stores an order and returns when it cannot be lost any more.
func (h *Hub) Spawn(ctx context.Context, r SpawnRequest, actor string) (SpawnAnswer, error) {
	if r.Spawn.Task = r.ID; r.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return SpawnAnswer{}, err
		}
		r.Spawn.Task = id.String()
	}
	life := DefaultLife
	if r.ExpiresInMS != 0 {
		life = time.Duration(r.ExpiresInMS) * time.Millisecond
	}
	if life < time.Second || life > MaxLife {
		return SpawnAnswer{}, commands.Refuse(commands.Validation, "an order may be started for 1s to 7 days, not %s", life)
	}
	if len(r.IdempotencyKey) > 256 {
		return SpawnAnswer{}, commands.Refuse(commands.Validation, "the idempotency key is longer than 256 bytes")
	}
	if err := r.Spawn.Validate(); err != nil {
		return SpawnAnswer{}, err
	}
	order := store.SpawnOrder{Spawn: &r.Spawn, Life: life, IdempotencyKey: r.IdempotencyKey, Actor: actor}
	if err := h.address(&order, r); err != nil {
		return SpawnAnswer{}, err
	}
	o, err := h.orders.Submit(ctx, order)
	if err != nil {
		return SpawnAnswer{}, err
	}
	if o.Err != nil {
		return SpawnAnswer{}, o.Err
	}
	return SpawnAnswer{o.Task, o.Spoke, o.Existing}, nil
}

// orderAll is one round of the order group: one transaction, then the relay.
func (h *Hub) orderAll(ctx context.Context, orders []store.SpawnOrder) ([]store.Ordered, error) {
	// The callers may have left; what they were promised is decided here.
	out, err := h.DB.OrderSpawns(context.WithoutCancel(ctx), orders)
	for _, o := range out {
		h.board.Wake(o.Conn)
	}
	return out, err
}

// address says where an order may go: to the named spoke, to the only one there
// is, or to any that can run it.
func (h *Hub) address(o *store.SpawnOrder, r SpawnRequest) error {
	switch {
	case r.Spoke != "" && r.Any:
		return commands.Refuse(commands.Validation, "give a spoke or any, not both")
	case r.Spoke != "":
		s, err := h.findSpoke(r.Spoke)
		o.Conn = s.ID
		return err
	case r.Any:
		o.Anywhere = true
		o.Among, o.Nowhere = candidates(h.board.Statuses(store.Commands), o.Spawn)
		return nil
	}
	var living []federation.Status
	for _, s := range h.board.Statuses(store.Commands) {
		if s.State == store.Active {
			living = append(living, s)
		}
	}
	if len(living) != 1 {
		return commands.Refuse(commands.Validation, "%d spokes are connected", len(living)).Hinting("name one with --spoke NAME, or let the hub choose with --any")
	}
	o.Conn = living[0].ID
	return nil
}

// findSpoke returns the connection with the spoke that a person means.
func (h *Hub) findSpoke(text string) (federation.Status, error) {
	s, err := h.board.Find(text, store.Commands)
	if err != nil {
		if up, known := h.board.Find(text, store.Obeys); known == nil {
			return s, commands.Refuse(commands.Validation, "%s is a hub that this instance obeys, not a spoke of it", up.Name).Hinting("see").Running("connections", "list")
		}
	}
	return s, err
}

// idPrefix reports whether s is an agent id or its first six or more characters.
func idPrefix(s string) bool {
	for i := range len(s) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (s[i] == '-') || !dash && !strings.ContainsRune("0123456789abcdef", rune(s[i])) {
			return false
		}
	}
	return len(s) >= 6 && len(s) <= 36
}

// Find returns the one mirror that a person means by an id or a prefix of it.
func (h *Hub) Find(ctx context.Context, text string) (store.Mirror, error) {
	text = strings.ToLower(text)
	if !idPrefix(text) {
		return store.Mirror{}, commands.Refuse(commands.Validation, "%q is not an agent id or six or more characters of one", text)
	}
	list, err := h.DB.FindMirrors(ctx, text)
	switch {
	case err != nil:
		return store.Mirror{}, err
	case len(list) == 0:
		return store.Mirror{}, commands.Refuse(commands.NotFound, "no agent %s", text).Hinting("see").Running("agents")
	case len(list) > 1:
		return store.Mirror{}, commands.Refuse(commands.Ambiguous, "%s fits several agents", text).Hinting("use more of the id; see").Running("agents", "-o", "wide")
	}
	return list[0], nil
}

// Kill stores a kill order. For an agent that has ended it changes nothing and
// returns the outcome that is there.
func (h *Hub) Kill(ctx context.Context, text, reason string, grace time.Duration, actor string) (store.Mirror, error) {
	m, err := h.Find(ctx, text)
	if err != nil {
		return m, err
	}
	k := commands.Kill{Task: m.Task, Reason: reason, GraceMS: grace.Milliseconds()}
	if err := k.Validate(); err != nil {
		return m, err
	}
	if _, err := h.DB.OrderKill(context.WithoutCancel(ctx), k, MaxLife, actor); err != nil {
		return m, err
	}
	h.board.Wake(m.Conn)
	return h.Find(ctx, m.Task)
}

// Ask sends a status command to the spoke of an agent and waits for its signed
// answer for as long as ctx allows.
func (h *Hub) Ask(ctx context.Context, text, actor string) (*commands.TaskState, error) {
	m, err := h.Find(ctx, text)
	if err != nil {
		return nil, err
	}
	news := h.watch.add(m.Task)
	defer h.watch.remove(m.Task, news)
	question, err := h.DB.OrderStatus(ctx, m.Task, time.Hour, actor)
	if err != nil {
		return nil, err
	}
	h.board.Wake(m.Conn)
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
		said := commands.Refuse(b.Code, "%s says: %s", m.Spoke, b.Why)
		if b.Hint != "" {
			said.Hint = m.Spoke + " says: " + b.Hint
		}
		return nil, said
	}
	return nil, fmt.Errorf("%s answered a status command with %s", m.Spoke, c.Body.Kind())
}
