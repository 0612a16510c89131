package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
)

// maxRetries is how many orders one after the other may be made of the first one by hand.
const maxRetries = 10

// Retry orders anew what an agent that has ended without success was ordered to do. The new order
// has an id of its own and names the old one, which stays as it is. An order is retried once: whoever
// asks again gets the order that is there.
func (h *Hub) Retry(ctx context.Context, text, actor string) (SpawnAnswer, error) {
	m, err := h.Find(ctx, text)
	if err != nil {
		return SpawnAnswer{}, err
	}
	short := commands.ShortID(m.Task)
	switch {
	case !m.State.Terminal():
		return SpawnAnswer{}, commands.Refuse(commands.Conflict, "agent %s is not retried: it is %s", short, m.State).Hinting("to end it first").Running("cancel", short, "--reason", "WHY")
	case !commands.May(m.State, commands.Queued, commands.ByRetry):
		return SpawnAnswer{}, commands.Refuse(commands.Conflict, "agent %s is not retried: it has completed", short).Hinting("order it once more with").Running("spawn")
	}
	before, anywhere, err := h.DB.RetriesBefore(ctx, m.Task)
	if err != nil {
		return SpawnAnswer{}, err
	}
	if before >= maxRetries {
		return SpawnAnswer{}, commands.Refuse(commands.Conflict, "agent %s is not retried: it is retry %d of its order, which is the limit", short, before).Hinting("order it once more with").Running("spawn")
	}
	r := SpawnRequest{Spoke: m.Spoke, Any: anywhere, Labels: m.Labels, IdempotencyKey: "retry/" + m.Task, ExpiresInMS: m.ExpiresAt.Sub(m.CreatedAt).Round(time.Second).Milliseconds()}
	if err := json.Unmarshal(m.Spec, &r.Spawn); err != nil {
		return SpawnAnswer{}, fmt.Errorf("reading the order of agent %s: %w", short, err)
	}
	if s := r.Spawn; len(s.Env) > 0 || s.Inline() {
		return SpawnAnswer{}, commands.Refuse(commands.Conflict, "agent %s is not retried: its variables, files and standard input were encrypted to its spoke, and this hub does not keep them", short).
			Hinting("order it once more, with them, by").Running("spawn")
	}
	if anywhere {
		r.Spoke = ""
	}
	r.Spawn.RetryOf = m.Task
	return h.Spawn(ctx, r, actor)
}
