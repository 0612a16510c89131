package backlog_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// The wait before a retry is drawn from nothing to a bound, which is the task's at first and doubles with
// each retry up to an hour.
func TestARetryWaitsUpToItsBound(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	for _, tt := range []struct {
		base    time.Duration // 0 = the usual one
		retries int
		bound   time.Duration
	}{{0, 0, 30 * time.Second}, {0, 3, 4 * time.Minute}, {0, 9, time.Hour}, {5 * time.Minute, 0, 5 * time.Minute}, {5 * time.Minute, 1, 10 * time.Minute}, {5 * time.Minute, 9, time.Hour}, {time.Hour, 3, time.Hour}} {
		t.Run(fmt.Sprint(tt.retries, " before, from ", tt.base), func(t *testing.T) {
			retries, bound := tt.retries, tt.bound
			specs := make([]backlog.TaskSpec, 25)
			for i := range specs {
				specs[i] = backlog.TaskSpec{Title: "x", MaxRetries: 10, BackoffMS: tt.base.Milliseconds()}
			}
			create(t, b, specs...)
			list := claimCards(t, b, nil)
			require.NoError(t, s.Exec(`UPDATE tasks SET retries = $1 WHERE id IN (SELECT task FROM leases)`, retries))

			for _, c := range list {
				_, err := b.Fail(t.Context(), backlog.Act{Fence: &c.Fence})
				require.NoError(t, err)
			}

			longest := time.Duration(s.Count(t, `SELECT (1000 * extract(epoch FROM max(not_before - updated_at)))::bigint FROM tasks WHERE retries = $1 AND backoff IS NOT DISTINCT FROM nullif($2::interval, '0')`, retries+1, tt.base)) * time.Millisecond
			require.LessOrEqual(t, longest, bound)
			require.Greater(t, longest, bound/2, "of 25 draws") // all are below half of it once in 30 million times
		})
	}
}
