package webhook

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store"
)

// A receiver that fails in a row gets one delivery at a time, after a pause that grows, and all that waits once it is
// back; both are said once.
func TestAReceiverThatFailsIsTriedNowAndThen(t *testing.T) {
	t.Parallel()
	var well atomic.Bool
	to := receive(t, func(w http.ResponseWriter, g got) {
		if !well.Load() {
			w.WriteHeader(http.StatusBadGateway)
		}
	})
	r := newRig(t, to)
	r.create(t, "fails", to, New{})
	r.changes(t, "running", 40)
	require.Eventually(t, func() bool {
		w := r.find(t, "fails")
		if w.Broken() && r.Count(t, `SELECT count(*) FROM webhook_deliveries WHERE leased_until IS NOT NULL`) == 0 {
			return true
		}
		r.sender.Changed()
		return false
	}, testPatience, 5*time.Millisecond)
	w := r.find(t, "fails")
	require.Greater(t, time.Until(*w.HeldUntil), time.Second)
	require.Equal(t, "it answered 502", w.LastError)
	sent := len(to.all())
	require.Less(t, sent, store.BreakAfter+store.AtOnce+1)

	for probe := 1; probe <= 3; probe++ {
		r.hurry(t)
		to.await(t, sent+probe)
		r.awaitCount(t, 0, `SELECT count(*) FROM webhook_deliveries WHERE leased_until IS NOT NULL`)
		require.Len(t, to.all(), sent+probe, "one at a time")
	}
	require.Greater(t, time.Until(*r.find(t, "fails").HeldUntil), time.Minute, "a pause that grows")
	well.Store(true)
	require.NoError(t, r.Exec(`UPDATE webhooks SET held_until = NULL`))
	r.sender.Changed()

	r.awaitCount(t, 40, `SELECT count(*) FROM webhook_deliveries WHERE state = 'delivered'`)
	require.Equal(t, 40, distinctIDs(to))
	w = r.find(t, "fails")
	require.Zero(t, w.Failures)
	require.Nil(t, w.HeldUntil)
	require.Eventually(t, func() bool { return strings.Contains(r.log.String(), "webhook answers again") }, testPatience, 5*time.Millisecond)
	require.Equal(t, 1, strings.Count(r.log.String(), "level=WARN"), r.log)
	require.NotContains(t, r.log.String(), "for=hub", "no URL in a log")
}

// A test that is taken ends the waits of all deliveries, however few have failed, and also where one was taken since.
func TestATestEndsTheWaitOfAll(t *testing.T) {
	t.Parallel()
	for _, failures := range []int{0, 1} {
		to := receive(t, nil)
		r := newRig(t, to)
		w := r.create(t, "back", to, New{})
		require.NoError(t, r.Exec(`INSERT INTO webhook_deliveries (id, webhook, type, body, at, tries, next_try_at)
			SELECT 'msg_' || n, $1, 'agent.state_changed', '{}', clock_timestamp(), 3, clock_timestamp() + interval '10 min' FROM generate_series(1, 3) n`, w.ID))
		require.NoError(t, r.Exec(`UPDATE webhooks SET failures = $1, failing_since = CASE WHEN $1 > 0 THEN clock_timestamp() END`, failures))

		d, err := r.sender.Test(t.Context(), "back")

		require.NoError(t, err)
		require.Equal(t, store.DeliveryDelivered, d.State)
		r.awaitCount(t, 4, `SELECT count(*) FROM webhook_deliveries WHERE state = 'delivered'`)
		require.Zero(t, r.find(t, "back").Failures)
	}
}

// Whoever wants nothing more is told nothing more, and so is who has failed for days; the audit says why.
func TestAWebhookIsDisabled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		since  string
		why    string
	}{
		"gone":     {http.StatusGone, "", "its receiver answered 410: it wants nothing more"},
		"for days": {http.StatusInternalServerError, `UPDATE webhooks SET failures = 1, failing_since = clock_timestamp() - interval '73 hours'`, "it has failed for 3d"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := receive(t, func(w http.ResponseWriter, g got) { w.WriteHeader(c.status) })
			r := newRig(t, to)
			r.create(t, "old", to, New{})
			if c.since != "" {
				require.NoError(t, r.Exec(c.since))
			}
			r.changes(t, "running", 1)

			require.Eventually(t, func() bool { return r.find(t, "old").State == store.WebhookDisabled }, testPatience, 5*time.Millisecond)

			w := r.find(t, "old")
			require.Equal(t, []string{c.why, fmt.Sprintf("it answered %d", c.status)}, []string{w.Why, w.LastError})
			require.Equal(t, 1, r.Count(t, `SELECT count(*) FROM audit WHERE action = 'webhook.disabled' AND actor = 'self' AND object = 'old' AND why = $1`, c.why), "what the receiver says is for owners")
			require.Eventually(t, func() bool { return strings.Contains(r.log.String(), "webhook was disabled") }, testPatience, 5*time.Millisecond)
			r.changes(t, "running", 3)
			r.hurry(t)
			require.Zero(t, r.Count(t, `SELECT count(*) FROM webhook_deliveries WHERE state = 'pending'`))
			require.Len(t, to.all(), 1)
			d, err := r.sender.Test(t.Context(), "old")
			require.NoError(t, err)
			require.Equal(t, store.DeliveryFailed, d.State, "a test is sent all the same, once")
		})
	}
}

// Once it is said that a webhook is disabled or removed, no more of what was claimed for it is sent.
func TestWhatWasClaimedIsNotSentToWhomIsToldNothing(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s *Sender) error{
		"disabled": func(s *Sender) error {
			_, err := s.Change(t.Context(), "loud", store.WebhookDisabled, "too loud", "test")
			return err
		},
		"removed": func(s *Sender) error { _, err := s.Remove(t.Context(), "loud", "test"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := make(chan struct{})
			to := receive(t, func(http.ResponseWriter, got) { <-open })
			r := newRig(t, to)
			letGo := sync.OnceFunc(func() { close(open) })
			t.Cleanup(letGo)
			r.create(t, "loud", to, New{})
			r.changes(t, "running", 10*store.AtOnce)
			to.await(t, store.AtOnce)
			left := func() (n int) {
				r.sender.lanes.mu.Lock()
				defer r.sender.lanes.mu.Unlock()
				for _, l := range r.sender.lanes.of {
					n += l.left
				}
				return n
			}
			require.Eventually(t, func() bool { return left() > store.AtOnce }, testPatience, 5*time.Millisecond, "others wait for their turn")

			require.NoError(t, end(r.sender))
			letGo()

			require.Eventually(t, func() bool { return left() == 0 }, testPatience, 5*time.Millisecond)
			require.Len(t, to.all(), store.AtOnce)
		})
	}
}

// A delivery that is never taken is given up after some tries, over days; a pause that the receiver asks for is kept
// within bounds.
func TestPausesGrowAndHaveBounds(t *testing.T) {
	t.Parallel()
	longest := time.Duration(0)
	for n := 1; n < mostTries; n++ {
		p := pause(n)
		require.GreaterOrEqual(t, p, pauses[n-1]/2)
		require.LessOrEqual(t, p, pauses[n-1])
		longest += p
	}
	require.Greater(t, longest, 20*time.Hour)
	require.Equal(t, 10, mostTries)
	require.Zero(t, hold(store.BreakAfter-1, 0))
	for n := range 3 { // each failure from the one that breaks it has the next pause
		require.GreaterOrEqual(t, hold(store.BreakAfter+n, 0), pauses[n]/2)
		require.LessOrEqual(t, hold(store.BreakAfter+n, 0), pauses[n])
	}
	require.Equal(t, 90*time.Second, hold(store.BreakAfter, 90*time.Second), "what the receiver asks for counts where it is longer")
	require.LessOrEqual(t, hold(1000, 0), longestHold)
	require.Greater(t, hold(1000, 0), longestHold/4)
	require.Equal(t, 90*time.Second, hold(1, 90*time.Second))
	require.Equal(t, longestAsked, hold(1, 1000*time.Hour))
	for text, want := range map[string]time.Duration{"": 0, "120": 2 * time.Minute, "-5": 0, "soon": 0, "Thu, 01 Jan 1970 00:00:00 GMT": 0, "99999999999": 0} {
		require.Equal(t, want, retryAfter(http.Header{"Retry-After": {text}}), text)
	}
	require.InDelta(t, time.Hour, retryAfter(http.Header{"Retry-After": {time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)}}), float64(2*time.Second))

	to := receive(t, func(w http.ResponseWriter, g got) { w.WriteHeader(http.StatusBadRequest) })
	r := newRig(t, to)
	r.create(t, "never", to, New{})
	r.changes(t, "running", 1)
	to.await(t, 1)
	r.awaitCount(t, 1, `SELECT count(*) FROM webhook_deliveries WHERE state = 'pending' AND leased_until IS NULL`)
	require.NoError(t, r.Exec(`UPDATE webhook_deliveries SET tries = $1`, mostTries-1))
	r.hurry(t)
	r.awaitCount(t, 1, `SELECT count(*) FROM webhook_deliveries WHERE state = 'failed' AND tries = $1 AND error = 'it answered 400'`, mostTries)

	r.changes(t, "running", 2)
	r.awaitCount(t, 2, `SELECT count(*) FROM webhook_deliveries WHERE state = 'pending' AND leased_until IS NULL AND tries > 0`)
	require.NoError(t, r.Exec(`UPDATE webhooks SET failures = $1`, store.BreakAfter))
	require.NoError(t, r.Exec(`UPDATE webhook_deliveries SET tries = $1 WHERE state = 'pending'`, mostTries))
	r.hurry(t)
	r.awaitCount(t, 1, `SELECT count(*) FROM webhook_deliveries WHERE state = 'pending' AND leased_until IS NULL AND tries > $1`, mostTries)
}

// What a clock of the database has put off that was ahead is sent as its hub starts.
func TestAClockThatWasAheadHoldsNoDeliveryBack(t *testing.T) {
	t.Parallel()
	to := receive(t, nil)
	r := newRig(t, to)
	r.create(t, "one", to, New{})
	r.stop()
	r.changes(t, "running", 3)
	r.start(t)
	to.await(t, 3)
	r.stop()
	require.NoError(t, r.Exec(`UPDATE webhook_deliveries SET state = 'pending', ended_at = NULL, tries = 0, next_try_at = now() + interval '1 year', waits_since = now() + interval '1 year'`))
	require.NoError(t, r.Exec(`UPDATE webhooks SET held_at = now() + interval '1 year', held_until = now() + interval '1 year'`))

	r.start(t)

	to.await(t, 6)
}
