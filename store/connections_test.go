package store_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// Who lets go on what it has suspended itself does not undo what a person has said meanwhile, nor while it waits for the row.
func TestAConnectionIsResumedByWhoHasSuspendedIt(t *testing.T) {
	t.Parallel()
	s := storetest.NewPair(t).Spoke
	set := func(by string) {
		_, err := s.DB.SetConnectionState(t.Context(), s.Conn.ID, store.Suspended, "not heard", by, nil)
		require.NoError(t, err)
	}
	audited := func() int { return s.Count(t, `SELECT count(*) FROM audit WHERE action = 'connection.active'`) }
	set("lease")
	before := audited()

	c, err := s.DB.ResumeConnection(t.Context(), s.Conn.ID, "lease", "heard again", "lease")
	require.NoError(t, err)
	require.Equal(t, store.Active, c.State)
	require.Equal(t, before+1, audited())

	set("lease")
	eye, hand := connect(t, s.URL), connect(t, s.URL)
	person, err := hand.Begin(t.Context())
	require.NoError(t, err)
	_, err = person.Exec(t.Context(), `UPDATE connections SET state_by = 'uid:0', state_reason = 'a holiday' WHERE id = $1`, s.Conn.ID)
	require.NoError(t, err)
	type outcome struct {
		c   store.Connection
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		c, err := s.DB.ResumeConnection(context.Background(), s.Conn.ID, "lease", "heard again", "lease")
		done <- outcome{c, err}
	}()
	for waits := false; !waits; {
		require.Empty(t, done, "it ended without waiting")
		require.NoError(t, eye.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waits))
	}
	require.NoError(t, person.Commit(t.Context()))

	o := <-done
	require.NoError(t, o.err)
	require.Equal(t, []any{store.Suspended, "uid:0", "a holiday"}, []any{o.c.State, o.c.By, o.c.Reason})
	require.Equal(t, before+1, audited())
}
