package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// maxChain is how many orders one after the other may be made of the first one by hand. It is none of the tries of
// one order, which its max_retries bounds.
const maxChain = 10

// Retry orders anew what an agent that has ended without success was ordered to do. The new order
// has an id of its own and names the old one, which stays as it is. An order is retried once: whoever
// asks again gets the order that is there.
func (h *Hub) Retry(ctx context.Context, text, actor string) (SpawnAnswer, error) {
	m, err := h.Find(ctx, text)
	if err != nil {
		return SpawnAnswer{}, err
	}
	if m.RetriedAs != "" { // which a hub that was restored from a backup knows of its spoke alone
		return h.retriedAs(ctx, m)
	}
	r, err := h.again(ctx, m)
	if err != nil {
		return SpawnAnswer{}, err
	}
	return h.Spawn(ctx, r, actor)
}

// again is the order that m had, for a new agent, or why it is not given once more.
func (h *Hub) again(ctx context.Context, m store.Mirror) (r SpawnRequest, err error) {
	short := commands.ShortID(m.Task)
	switch {
	case viewOf(m).Finishes() != "":
		return r, commands.Refuse(commands.Conflict, "agent %s is not retried: it is %s; %s", short, m.State, viewOf(m).Finishes()).Hinting("to end it now").Running("kill", short, "--reason", "WHY")
	case !m.State.Terminal():
		return r, commands.Refuse(commands.Conflict, "agent %s is not retried: it is %s", short, m.State).Hinting("to end it first").Running("cancel", short, "--reason", "WHY")
	case !commands.May(m.State, commands.Queued, commands.ByRetry):
		return r, commands.Refuse(commands.Conflict, "agent %s is not retried: it has completed", short).Hinting("order the same once more, as a new agent, with spawn; the command it ran is shown by").Running("status", short)
	}
	if m.Unheard && m.StartedAt != nil {
		return r, commands.Refuse(commands.Conflict, "agent %s is not retried: this hub has ended it (%s), and %s has started it and not told its end", short, m.Reason, m.Spoke).
			Hinting("to end it there").Running("kill", short, "--reason", "WHY")
	}
	if len(m.Result) == 0 && len(m.Refusal) == 0 {
		may := fmt.Sprintf("without a word of %s, where it may have run or run still", m.Spoke)
		if m.Between() {
			may = fmt.Sprintf("after attempt %d, whose end %s has told; it may have run once more there", m.Attempt, m.Spoke)
		}
		return r, anew(m, "see on that host what became of it; if it may run once more, order it with", "this hub has ended it (%s) %s", m.Reason, may)
	}
	before, anywhere, err := h.DB.RetriesBefore(ctx, m.Task)
	if err != nil {
		return r, err
	}
	if m.ConnState.Ended() && !anywhere {
		return r, anew(m, "order it once more, on a spoke that is connected, with", "the connection with %s that it ran over is %s, and one that has the name now is another one", m.Spoke, m.ConnState)
	}
	if before >= maxChain {
		return r, anew(m, "order it once more with", "it is retry %d of its order, which is the limit", before)
	}
	// By its id: a spoke that has joined under the name since is another one.
	r = SpawnRequest{Spoke: m.Conn, Any: anywhere, Labels: m.Labels, IdempotencyKey: "retry/" + m.Task, ExpiresInMS: m.ExpiresAt.Sub(m.CreatedAt).Round(time.Second).Milliseconds()}
	if err := json.Unmarshal(m.Spec, &r.Spawn); err != nil {
		return r, fmt.Errorf("reading the order of agent %s: %w", short, err)
	}
	if s := r.Spawn; len(s.Env) > 0 || s.Inline() {
		return r, anew(m, "order it once more, with them, by", "its variables, files and standard input were encrypted to its spoke, and this hub does not keep them")
	}
	if anywhere {
		r.Spoke = ""
	}
	r.Spawn.RetryOf = m.Task
	return r, nil
}

// anew refuses to retry m, and hints at the order to give by hand. A spoke whose connection has ended takes none, and is not named.
func anew(m store.Mirror, hint, format string, args ...any) *commands.Refused {
	spoke := m.Spoke
	if m.ConnState.Ended() {
		spoke = "SPOKE"
	}
	return commands.Refuse(commands.Conflict, "agent %s is not retried: "+format, append([]any{commands.ShortID(m.Task)}, args...)...).Hinting("%s", hint).Running("spawn", "--spoke", spoke, "--", "COMMAND")
}

// retrying adds to an agent that has ended why it is not retried.
func (h *Hub) retrying(ctx context.Context, v *AgentView) error {
	if !v.State.Terminal() || v.RetriedAs != "" {
		return nil
	}
	_, err := h.again(ctx, v.Mirror)
	if refused, ok := errors.AsType[*commands.Refused](err); ok {
		v.NotRetried, err = refused, nil
	}
	return err
}

// retriedAs answers with the order that was made of m before.
func (h *Hub) retriedAs(ctx context.Context, m store.Mirror) (SpawnAnswer, error) {
	was, err := h.Find(ctx, m.RetriedAs)
	return SpawnAnswer{ID: was.Task, ShortID: was.ShortID, Spoke: was.Spoke, Existing: true}, err
}
