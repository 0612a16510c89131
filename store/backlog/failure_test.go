package backlog_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// A task shows how its last try failed while it is tried again, and no more once one has succeeded.
func TestATaskShowsItsLastError(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	create(t, b, backlog.TaskSpec{Key: "a", Title: "t", MaxRetries: 5, BackoffMS: 1})
	try := func() *backlog.Fence {
		require.NoError(t, s.Exec(`WITH t AS (UPDATE tasks SET not_before = now() RETURNING id) UPDATE due SET at = now() FROM t WHERE task = t.id`))
		_, err := b.Sweep(t.Context())
		require.NoError(t, err)
		return &claimCards(t, b, nil)[0].Fence
	}
	shows := func(want *commands.LastError) {
		t.Helper()
		v, err := b.Show(t.Context(), "a")
		require.NoError(t, err)
		if got := v.LastError; got != nil {
			require.WithinDuration(t, v.UpdatedAt, got.At, time.Minute)
			got.At = time.Time{}
		}
		require.Equal(t, want, v.LastError)
	}
	shows(nil)
	_, err := b.Fail(t.Context(), backlog.Act{Fence: try(), Reason: "the disk is full"})
	require.NoError(t, err)
	full := &commands.LastError{Code: "failed", Text: "the disk is full", Attempt: 1}
	shows(full)
	_, err = b.Release(t.Context(), backlog.Act{Fence: try(), Reason: "not mine"})
	require.NoError(t, err)
	shows(full)
	try()
	shows(full)
	require.NoError(t, s.Exec(`UPDATE leases SET until = now(), sweep_at = now()`))
	_, err = b.Sweep(t.Context())
	require.NoError(t, err)
	shows(&commands.LastError{Code: "lease_expired", Text: "its claim ran out before its worker renewed it", Attempt: 3})
	try()
	_, err = b.Fail(t.Context(), backlog.Act{Task: "a", Reason: strings.Repeat("ä", 300)})
	require.NoError(t, err)
	shows(&commands.LastError{Code: "failed", Text: strings.Repeat("ä", commands.MaxError/2), Attempt: 4})
	_, err = b.Retry(t.Context(), backlog.Act{Task: "a"})
	require.NoError(t, err)
	_, err = b.Complete(t.Context(), backlog.Act{Fence: try()})
	require.NoError(t, err)
	shows(nil)
}

// So does one that is completed while it waits for its next try.
func TestWhatIsCompletedByHandShowsNoError(t *testing.T) {
	t.Parallel()
	b := board(t)
	create(t, b, backlog.TaskSpec{Key: "a", Title: "t", MaxRetries: 1})
	_, err := b.Fail(t.Context(), backlog.Act{Fence: &claimCards(t, b, nil)[0].Fence, Reason: "no"})
	require.NoError(t, err)
	v, err := b.Show(t.Context(), "a")
	require.NoError(t, err)
	require.NotNil(t, v.LastError)

	v, err = b.Complete(t.Context(), backlog.Act{Task: "a"})

	require.NoError(t, err)
	require.Nil(t, v.LastError)
}
