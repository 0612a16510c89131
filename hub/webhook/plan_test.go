package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// stopped is a rig without a life: tests plan by hand.
func stopped(t *testing.T, trust ...*receiver) *rig {
	t.Helper()
	r := newRig(t, trust...)
	r.stop()
	r.numbered(t, "", 0) // what there is
	return r
}

// numbered tells of agents that got into a state, gives these changes their numbers, and returns the last one.
func (r *rig) numbered(t *testing.T, state string, n int) int64 {
	t.Helper()
	r.changes(t, state, n)
	_, last, err := r.DB.NumberEvents(t.Context(), 10_000)
	require.NoError(t, err)
	return last
}

// disable and enable do that to a webhook.
func (r *rig) change(t *testing.T, name, state string) {
	t.Helper()
	_, err := r.sender.Change(t.Context(), name, state, "why", "test")
	require.NoError(t, err)
}

// gaps are the events of which a receiver was told that it is not told of them.
func gaps(t *testing.T, to *receiver) (list []gapData) {
	t.Helper()
	for _, g := range to.all() {
		var v struct{ Data gapData }
		require.NoError(t, json.Unmarshal([]byte(g.body), &v))
		if g.typ(t) == eventsGap {
			list = append(list, v.Data)
		}
	}
	return list
}

// What is given up as a webhook is disabled is said to be missing when it is enabled: also where nothing else has happened,
// and where what says so is given up itself.
func TestWhatIsGivenUpIsSaidToBeMissing(t *testing.T) {
	t.Parallel()
	to := receive(t, nil)
	r := stopped(t, to)
	r.create(t, "late", to, New{})
	first := r.numbered(t, "running", 1)
	last := r.numbered(t, "running", 4)
	require.NoError(t, r.sender.planAll(t.Context()))
	require.Equal(t, 5, r.Count(t, `SELECT count(*) FROM webhook_deliveries WHERE state = 'pending'`))

	for range 2 {
		r.change(t, "late", store.WebhookDisabled)
		r.change(t, "late", store.WebhookActive)
	}
	r.start(t)

	all := to.await(t, 1)
	require.Equal(t, []gapData{{first, last}}, gaps(t, to))
	require.True(t, strings.HasSuffix(all[0].id, fmt.Sprintf("_%d-%d", first, last)), all[0].id)
	r.awaitCount(t, 1, `SELECT count(*) FROM webhook_deliveries WHERE state = 'delivered'`)
	r.awaitCount(t, 1, `SELECT count(*) FROM webhooks WHERE cursor > $1`, last) // the start of this life is behind it, too
	r.change(t, "late", store.WebhookDisabled)
	r.change(t, "late", store.WebhookActive)
	require.Zero(t, r.Count(t, `SELECT count(*) FROM webhook_deliveries WHERE state = 'pending'`), "nothing was missed then")
}

// After a restore no webhook is told anything: it may have been deleted since. Whoever enables it has it told what it
// missed and that the database is one from before, under ids that no other event has had.
func TestARestoreDisablesWebhooks(t *testing.T) {
	t.Parallel()
	to := receive(t, nil)
	r := stopped(t, to)
	_, err := r.DB.BeginIncarnation(t.Context(), []string{""}, "one")
	require.NoError(t, err)
	r.create(t, "links", to, New{Types: []string{ConnectionLinkChanged}})
	r.create(t, "off", to, New{})
	r.change(t, "off", store.WebhookDisabled)
	require.NoError(t, r.DB.NoteEvent(t.Context(), store.LinkEvent, "", "up"))
	last := r.numbered(t, "running", 2)
	require.NoError(t, r.sender.planAll(t.Context()))
	require.NoError(t, r.DB.NoteEvent(t.Context(), store.LinkEvent, "", "down")) // has no number yet: the life that is lost may have given it to another

	restored, err := r.DB.BeginIncarnation(t.Context(), []string{"another"}, "two")

	require.NoError(t, err)
	require.True(t, restored)
	r.start(t)
	require.NoError(t, r.DB.NoteEvent(t.Context(), store.LinkEvent, "", "up"))
	require.Eventually(t, func() bool { return r.Count(t, `SELECT count(*) FROM new_events`) == 0 }, testPatience, look/1000)
	v := r.find(t, "links")
	require.Equal(t, []string{store.WebhookDisabled, store.Restored}, []string{v.State, v.Why})
	require.Equal(t, "why", r.find(t, "off").Why, "somebody has disabled it")
	require.Equal(t, 1, r.Count(t, `SELECT count(*) FROM audit WHERE action = 'webhook.disabled' AND object = 'links' AND actor = 'self' AND why = 'restored'`))
	require.Zero(t, r.Count(t, `SELECT count(*) FROM webhook_deliveries WHERE state = 'pending'`))
	require.Empty(t, to.all())

	r.change(t, "links", store.WebhookActive)

	require.ElementsMatch(t, []string{eventsGap, eventsRestored}, []string{to.await(t, 2)[0].typ(t), to.all()[1].typ(t)})
	gap := gaps(t, to)[0]
	require.Less(t, gap.From, last)
	require.Greater(t, gap.To, last+1000)
	for _, g := range to.all() {
		var number int64
		_, err := fmt.Sscan(g.id[strings.LastIndexAny(g.id, "_-")+1:], &number)
		require.NoError(t, err)
		require.Greater(t, number, last+1000, g.id)
	}
}

// A webhook that is far behind, and wants none of what it gets to, holds the others up by a page at a time.
func TestWhoIsFarBehindHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	to := receive(t, nil)
	r := stopped(t, to)
	r.create(t, "behind", to, New{States: []string{"expired"}})
	r.numbered(t, "running", 1200)
	r.create(t, "quick", to, New{})
	last := r.numbered(t, "running", 1)

	p, turns := planner, 0
	for r.Count(t, `SELECT count(*) FROM webhook_deliveries`) == 0 {
		done, err := r.DB.PlanDeliveries(t.Context(), p)
		require.NoError(t, err)
		require.True(t, done.More)
		p.After, turns = done.At, turns+1
	}

	require.LessOrEqual(t, turns, 2)
	require.Less(t, r.find(t, "behind").Cursor, last)
	require.NoError(t, r.sender.planAll(t.Context()))
	require.Equal(t, last, r.find(t, "behind").Cursor)
	require.Equal(t, 1, r.Count(t, `SELECT count(*) FROM webhook_deliveries`))
}

// Events that had no room are planned as deliveries are taken, also where nothing else happens.
func TestWhatHadNoRoomIsPlannedSoon(t *testing.T) {
	t.Parallel()
	to := receive(t, nil)
	r := stopped(t, to)
	r.create(t, "full", to, New{})
	const events = 1500
	r.numbered(t, "running", events)
	require.NoError(t, r.sender.planAll(t.Context()))
	require.True(t, r.sender.full.Load())
	require.NoError(t, r.Exec(`UPDATE webhook_deliveries SET state = 'delivered', ended_at = clock_timestamp()`))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)

	go func() { done <- r.sender.refill(ctx) }()

	r.awaitCount(t, events, `SELECT count(*) FROM webhook_deliveries`)
	stop()
	require.NoError(t, <-done)
}

// A test whose process died is sent by nobody else.
func TestATestIsSentOnce(t *testing.T) {
	t.Parallel()
	to := receive(t, nil)
	r := stopped(t, to)
	w := r.create(t, "tested", to, New{})
	begun, err := r.DB.BeginTest(t.Context(), w.ID, "test_1", message(webhookTest, w.CreatedAt, testData{w.Name}))
	require.NoError(t, err)
	require.NoError(t, r.Exec(`UPDATE webhook_deliveries SET next_try_at = clock_timestamp() - interval '1 day', leased_until = NULL`))

	list, err := r.DB.ClaimDeliveries(t.Context(), lease)

	require.NoError(t, err)
	require.Empty(t, list)
	d, err := r.DB.FindDelivery(t.Context(), w.ID, begun.ID)
	require.NoError(t, err)
	require.Equal(t, []any{store.DeliveryFailed, "no answer was noted"}, []any{d.State, d.Error})
	d, err = r.sender.Test(t.Context(), "tested")
	require.NoError(t, err)
	require.Equal(t, []any{store.DeliveryDelivered, "", 204}, []any{d.State, d.Error, d.Status})
	require.Len(t, to.all(), 1)
}

// A name that looks like an id is none: what people write would mean two webhooks.
func TestANameIsNoIDOfAWebhook(t *testing.T) {
	t.Parallel()
	to := receive(t, nil)
	r := stopped(t, to)
	w := r.create(t, "one", to, New{})

	_, err := r.sender.Create(t.Context(), New{Name: w.ID, URL: to.URL, Port: to.port(t)}, "test")

	require.Equal(t, commands.Validation, commands.CodeOf(err))
	require.Contains(t, err.Error(), "looks like an id")
}

// What others have written is kept, shown and logged in part.
func TestWhyATryFailedIsClipped(t *testing.T) {
	t.Parallel()
	require.Len(t, words(fmt.Errorf("%s", strings.Repeat("x", 5000))), mostSaid)
}
