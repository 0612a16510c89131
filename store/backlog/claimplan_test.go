package backlog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// A session that has claimed from an empty backlog keeps its plan until the database has counted what came since, for a minute or so. It
// reads few rows of many all the same.
func TestAClaimThatWasPlannedWhileNothingWaitedReadsFewRows(t *testing.T) {
	t.Parallel()
	side := newSide(t)
	w := scene{t, side, boardOf(t, side, backlog.MainWorkspace)}
	claims := func(n int) {
		for range n {
			_, err := w.b.Claim(t.Context(), backlog.ClaimTerms{Owner: "worker", Limit: 1})
			require.NoError(t, err)
		}
	}
	fetched := func() (n int64) { // a session tells its counts with a transaction that comes a second after the last ones
		time.Sleep(1100 * time.Millisecond)
		claims(1)
		require.NoError(t, owner(w, w.URL).QueryRow(t.Context(), `SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_user_tables WHERE relname = 'ready'`).Scan(&n))
		return n
	}
	create(w, w.b, backlog.TaskSpec{Title: "t"})
	claims(10) // of five on the plan is one for all
	for range 10 {
		_, err := w.b.Create(t.Context(), make500()...)
		require.NoError(t, err)
	}
	before := fetched()

	claims(20)

	read := fetched() - before
	require.Positive(t, read)
	require.Less(t, read, int64(2000), "rows of ready that 21 claims have read, of 5,000")
}

func make500() []backlog.TaskSpec {
	list := make([]backlog.TaskSpec, 500)
	for i := range list {
		list[i].Title = "t"
	}
	return list
}
