package webhook

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/feed"
	"github.com/spawnmesh/spawnmesh/store"
)

// A webhook is told of what it wants, from its creation on, and of nothing else; what comes is signed by its key, and thin.
func TestAWebhookIsToldWhatItWants(t *testing.T) {
	t.Parallel()
	to := receive(t, nil)
	r := newRig(t, to)
	r.changes(t, "failed", 1)
	_, _, err := r.DB.NumberEvents(t.Context(), 100)
	require.NoError(t, err)
	w := r.create(t, "ends", to, New{States: []string{"failed", "completed"}})
	require.NoError(t, r.DB.NoteEvent(t.Context(), store.LinkEvent, "", "up"))
	r.changes(t, "running", 2)
	r.changes(t, "completed", 1)

	all := to.await(t, 1)
	time.Sleep(20 * time.Millisecond)
	require.Len(t, to.all(), 1)
	var told struct {
		Type      string
		Timestamp time.Time
		Data      map[string]any
	}
	require.NoError(t, json.Unmarshal([]byte(all[0].body), &told))
	require.Equal(t, TaskStatusChanged, told.Type)
	require.WithinDuration(t, time.Now(), told.Timestamp, testPatience)
	require.Equal(t, []any{"queued", "completed", 0.0, commands.ShortID(told.Data["task"].(string))}, []any{told.Data["previous"], told.Data["state"], told.Data["attempt"], told.Data["short_id"]})
	require.Len(t, told.Data, 6, "and nothing of what the agent was given")
	require.Equal(t, "msg_"+strings.ReplaceAll(w.ID, "-", "")+"_"+jsonNumber(told.Data["seq"]), all[0].id)
	key, _, err := r.sender.PublicKeys(w)
	require.NoError(t, err)
	require.True(t, all[0].verifies(t, key))
	require.WithinDuration(t, time.Now(), time.Unix(all[0].at, 0), testPatience)
}

// A webhook that wants it is told what an agent says of its progress, and that it overruns, by a body of its own; whoever does not is not.
func TestAWebhookIsToldOfProgressAndOverruns(t *testing.T) {
	t.Parallel()
	to, other := receive(t, nil), receive(t, nil)
	r := newRig(t, to, other)
	r.create(t, "progress", to, New{Types: []string{TaskStatusChanged, AgentProgress, AgentOverrun}, States: []string{"failed"}})
	r.create(t, "ends", other, New{})
	require.NoError(t, r.DB.Tx(t.Context(), "noting", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO new_events (kind, task, attempt, progress) VALUES
			('progress', gen_random_uuid(), 1, '{"current": 1, "total": 4, "step": "tests", "at": 7}'), ('overrun', gen_random_uuid(), 2, NULL)`)
		return err
	}))

	all := to.await(t, 2)
	slices.SortFunc(all, func(a, b got) int { return strings.Compare(b.typ(t), a.typ(t)) })

	require.Equal(t, []string{AgentProgress, AgentOverrun}, []string{all[0].typ(t), all[1].typ(t)})
	require.Regexp(t, `"data":{"task":"[-0-9a-f]{36}","short_id":"[0-9a-z]{8}","attempt":1,"progress":{"current":1,"total":4,"step":"tests","percent":25},"seq":\d+}}$`, all[0].body)
	require.Regexp(t, `"data":{"task":"[-0-9a-f]{36}","short_id":"[0-9a-z]{8}","attempt":2,"seq":\d+}}$`, all[1].body)
	r.changes(t, "completed", 1)
	require.Equal(t, TaskStatusChanged, other.await(t, 1)[0].typ(t))
	require.Len(t, other.all(), 1)
}

func jsonNumber(v any) string {
	raw, _ := json.Marshal(v)
	return string(raw)
}

// Whatever the receivers do and however often the hub is started again, each event comes to each webhook that wants it,
// under one id, and no other one comes.
func TestEveryEventComesOverRestarts(t *testing.T) {
	t.Parallel()
	flaky := receive(t, func(w http.ResponseWriter, g got) {
		if g.try == 1 && strings.HasSuffix(g.id, "3") {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	slow := receive(t, func(w http.ResponseWriter, g got) { time.Sleep(10 * time.Millisecond) })
	r := newRig(t, flaky, slow)
	r.create(t, "flaky", flaky, New{})
	r.create(t, "slow", slow, New{})
	const lives, each = 10, 20
	for range lives {
		r.changes(t, "running", each)
		time.Sleep(15 * time.Millisecond)
		r.stop()
		r.changes(t, "failed", each)
		r.start(t)
	}
	for _, to := range []*receiver{flaky, slow} {
		require.Eventually(t, func() bool { r.hurry(t); return distinctIDs(to) >= 2*lives*each }, testPatience, 20*time.Millisecond)
		require.Equal(t, 2*lives*each, distinctIDs(to))
		bodies := map[string]string{}
		for _, g := range to.all() {
			if first, there := bodies[g.id]; there {
				require.Equal(t, first, g.body)
			}
			bodies[g.id] = g.body
		}
	}
	r.awaitCount(t, 4*lives*each, `SELECT count(*) FROM webhook_deliveries WHERE state = 'delivered'`)
}

func distinctIDs(to *receiver) int {
	ids := map[string]bool{}
	for _, g := range to.all() {
		ids[g.id] = true
	}
	return len(ids)
}

// A receiver that never answers in time has a few requests at a time, and holds nobody up.
func TestASlowReceiverHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	open := make(chan struct{})
	slow := receive(t, func(http.ResponseWriter, got) { <-open })
	quick := receive(t, nil)
	r := newRig(t, slow, quick)
	defer close(open)
	r.create(t, "slow", slow, New{})
	r.create(t, "quick", quick, New{})

	r.changes(t, "running", 300)

	quick.await(t, 300)
	slow.await(t, store.AtOnce)
	require.LessOrEqual(t, slow.most, store.AtOnce)
	require.Len(t, slow.all(), store.AtOnce)
}

// What was not taken comes again under its id, at another time, until it is taken; a delivery that was taken can be sent
// again, too.
func TestADeliveryKeepsItsID(t *testing.T) {
	t.Parallel()
	to := receive(t, func(w http.ResponseWriter, g got) {
		if g.try < 3 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	r := newRig(t, to)
	w := r.create(t, "again", to, New{})
	r.changes(t, "running", 1)
	to.await(t, 1)
	require.Eventually(t, func() bool { r.hurry(t); return len(to.all()) == 3 }, testPatience, 50*time.Millisecond)
	r.awaitCount(t, 1, `SELECT count(*) FROM webhook_deliveries WHERE state = 'delivered' AND tries = 3 AND status = 200`)

	list, err := r.DB.Deliveries(t.Context(), w.ID, 0, 10)
	require.NoError(t, err)
	_, err = r.sender.Resend(t.Context(), "again", list[0].ID, "test")
	require.NoError(t, err)
	all := to.await(t, 4)

	for _, g := range all {
		require.Equal(t, list[0].ID, g.id)
		require.Equal(t, all[0].body, g.body)
	}
	_, err = r.sender.Resend(t.Context(), "again", "msg_none", "test")
	require.Equal(t, commands.NotFound, commands.CodeOf(err))
}

// Events that the feed no longer has are said to be missing, and so are those of the time in which a webhook was disabled.
func TestWhatIsNotToldIsSaid(t *testing.T) {
	t.Parallel()
	to := receive(t, nil)
	r := newRig(t, to)
	r.create(t, "late", to, New{})
	r.changes(t, "running", 1)
	to.await(t, 1)
	r.awaitCount(t, 0, `SELECT count(*) FROM webhook_deliveries WHERE state = 'pending'`)
	r.stop()
	r.changes(t, "running", 5)
	_, last, err := r.DB.NumberEvents(t.Context(), 100)
	require.NoError(t, err)
	require.NoError(t, r.Exec(`DELETE FROM events WHERE seq < $1`, last))
	r.start(t)

	all := to.await(t, 3)
	require.ElementsMatch(t, []string{"events.gap", TaskStatusChanged}, []string{all[1].typ(t), all[2].typ(t)})
	cursor := r.find(t, "late").Cursor

	_, err = r.sender.Change(t.Context(), "late", store.WebhookDisabled, "its host moves", "test")
	require.NoError(t, err)
	r.changes(t, "failed", 2)
	require.Eventually(t, func() bool { n, err := r.DB.LastEvent(t.Context()); return err == nil && n >= cursor+2 }, testPatience, 5*time.Millisecond)
	_, err = r.sender.Change(t.Context(), "late", store.WebhookActive, "", "test")
	require.NoError(t, err)
	all = to.await(t, 4)
	require.Equal(t, "events.gap", all[3].typ(t))
	require.Contains(t, all[3].body, `"to":`+jsonNumber(r.find(t, "late").Cursor))
	require.Len(t, to.all(), 4)
}

// While a key is being rotated, each message is signed by both; then by the new one alone.
func TestBothKeysSignDuringARotation(t *testing.T) {
	t.Parallel()
	to := receive(t, nil)
	r := newRig(t, to)
	w := r.create(t, "keys", to, New{})
	first, none, err := r.sender.PublicKeys(w)
	require.NoError(t, err)
	require.Empty(t, none)
	w, err = r.sender.Rotate(t.Context(), "keys", "test")
	require.NoError(t, err)
	second, before, err := r.sender.PublicKeys(w)
	require.NoError(t, err)
	require.Equal(t, first, before)
	require.NotEqual(t, first, second)
	require.WithinDuration(t, time.Now().Add(Overlap), *w.OldKeyUntil, time.Hour)

	r.changes(t, "running", 1)
	during := to.await(t, 1)[0]
	require.NoError(t, r.Exec(`UPDATE webhooks SET old_key_until = clock_timestamp()`))
	r.changes(t, "running", 1)
	after := to.await(t, 2)[1]

	require.True(t, during.verifies(t, first) && during.verifies(t, second))
	require.True(t, after.verifies(t, second) && !after.verifies(t, first))
	require.Zero(t, r.Count(t, `SELECT count(*) FROM webhooks w WHERE w::text LIKE '%whsk%' OR w::text LIKE '%' || $1 || '%'`, "a secret of a hub"))
}

// A delivery that is being tried is taken by nobody else until its lease is over, as when its process has died; what comes
// of the try before that changes nothing then.
func TestADeliveryIsTriedByOneAtATime(t *testing.T) {
	t.Parallel()
	open := make(chan struct{})
	to := receive(t, func(http.ResponseWriter, got) { <-open })
	r := newRig(t, to)
	defer close(open)
	r.create(t, "one", to, New{})
	r.changes(t, "running", 1)
	first := to.await(t, 1)[0]

	list, err := r.DB.ClaimDeliveries(t.Context(), lease)
	require.NoError(t, err)
	require.Empty(t, list)
	_, err = r.sender.Resend(t.Context(), "one", first.id, "test")
	require.Equal(t, commands.Conflict, commands.CodeOf(err))
	require.Contains(t, err.Error(), "is being sent to the webhook one now")
	require.Zero(t, r.Count(t, `SELECT count(*) FROM audit WHERE action = 'webhook.resent'`))
	require.Eventually(t, func() bool { // the sender of the hub may be first, whose try does not end
		require.NoError(t, r.Exec(`UPDATE webhook_deliveries SET leased_until = clock_timestamp()`))
		list, err = r.DB.ClaimDeliveries(t.Context(), lease)
		require.NoError(t, err)
		return len(list) == 1
	}, testPatience, 5*time.Millisecond)
	require.Equal(t, first.id, list[0].ID)
	late, tries := list[0], list[0].Tries
	require.Greater(t, tries, 1)
	late.Tries--
	require.NoError(t, r.DB.NoteDelivered(t.Context(), []store.Delivered{{Trial: late, Status: 200}}))
	require.NoError(t, r.DB.ReturnDeliveries(t.Context(), []store.Trial{late}))

	require.Equal(t, 1, r.Count(t, `SELECT count(*) FROM webhook_deliveries WHERE state = 'pending' AND tries = $1 AND leased_until IS NOT NULL`, tries))
	require.NoError(t, r.DB.NoteDelivered(t.Context(), []store.Delivered{{Trial: list[0], Status: 200}}))
	require.Equal(t, 1, r.Count(t, `SELECT count(*) FROM webhook_deliveries WHERE state = 'delivered' AND status = 200`))
}

// A webhook that is far behind has some deliveries that wait, and the rest of its events in the feed; all come in the end,
// also where nothing else happens.
func TestWhatWaitsForAWebhookIsBounded(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	open := sync.OnceFunc(func() { close(closed) })
	to := receive(t, func(http.ResponseWriter, got) { <-closed })
	r := newRig(t, to)
	defer open()
	r.create(t, "behind", to, New{})
	const events = 1500
	r.changes(t, "running", events)
	last, err := r.sender.Feed.Since(t.Context(), feed.Now)
	require.NoError(t, err)
	require.Eventually(t, r.sender.full.Load, testPatience, 5*time.Millisecond)
	require.Less(t, r.find(t, "behind").Cursor, last)
	require.Less(t, r.Count(t, `SELECT count(*) FROM webhook_deliveries`), 1300)

	open()

	r.awaitCount(t, events, `SELECT count(*) FROM webhook_deliveries WHERE state = 'delivered'`)
	require.Equal(t, events, distinctIDs(to))
}
