package metrics

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func scrape(t *testing.T, r *Registry) string {
	t.Helper()
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, w.Code)
	return w.Body.String()
}

// A defect that makes up words cannot fill the memory of this process and of whoever collects.
func TestALabelHasFewValues(t *testing.T) {
	t.Parallel()
	r := New(Words{})

	for n := range 3 * maxValues {
		r.Counters.Refused(fmt.Sprintf("CODE_%d", n))
	}

	text := scrape(t, r)
	require.Contains(t, text, `spawnmesh_messages_refused_total{code="CODE_98"} 1`)
	require.NotContains(t, text, `{code="CODE_99"}`)
	require.Contains(t, text, `spawnmesh_messages_refused_total{code="other"} 201`)
}

// What can happen is zero before it has: else its first time is no increase.
func TestWhatHasNotHappenedIsZero(t *testing.T) {
	t.Parallel()
	text := scrape(t, New(Words{Outcomes: []string{"failed"}, Results: []string{"expired"}}))

	require.Contains(t, text, `spawnmesh_attempts_ended_total{outcome="failed"} 0`)
	require.Contains(t, text, `spawnmesh_results_total{state="expired"} 0`)
	require.Contains(t, text, `spawnmesh_kills_total{cause="lease"} 0`)
}

// Who has no instance counts nothing.
func TestNoCountersCountNothing(t *testing.T) {
	t.Parallel()
	var c *Counters
	c.Claimed(1)
	c.Reclaimed(1)
	c.Ordered(1)
	c.LinkLost()
	c.Started(time.Second)
	c.Swept(time.Second)
	c.Ended("failed")
	c.Killed(ByOrder)
	c.Refused("RATE")
	c.Result("failed", true)
}

// Many who ask within a moment ask the database once, and a group that cannot be read is
// missing and said to be, while the others are there.
func TestAGroupIsReadOnceForAll(t *testing.T) {
	t.Parallel()
	r, read := New(Words{}), 0
	depth, size := NewFigure("depth", "How deep.", Gauge), NewFigure("size", "How large.", Gauge)
	r.Group("deep", time.Second, time.Hour, func(context.Context) ([]Reading, error) {
		read++
		return []Reading{{Of: depth, Value: 7}}, nil
	}, depth)
	r.Group("large", time.Second, time.Hour, func(ctx context.Context) ([]Reading, error) {
		_, bound := ctx.Deadline()
		require.True(t, bound)
		return []Reading{{Of: size, Value: 7}}, errors.New("the database is away")
	}, size)

	for range 3 {
		text := scrape(t, r)
		require.Contains(t, text, "\nspawnmesh_depth 7\n")
		require.Contains(t, text, `spawnmesh_group_read{group="deep"} 1`)
		require.NotContains(t, text, "spawnmesh_size")
		require.Contains(t, text, `spawnmesh_group_read{group="large"} 0`)
	}

	require.Equal(t, 1, read)
}
