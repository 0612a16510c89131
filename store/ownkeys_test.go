package store_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

func TestChangesOfTheKeyThatAreRefused(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	least, most := store.MinOverlap.Milliseconds(), store.MaxOverlap.Milliseconds()
	for name, tt := range map[string]struct {
		change store.KeyChange
		want   commands.Code
	}{
		"an overlap of a millisecond":   {store.KeyChange{OverlapMS: 1}, commands.Validation},
		"an overlap below the least":    {store.KeyChange{OverlapMS: least - 1}, commands.Validation},
		"a negative overlap":            {store.KeyChange{OverlapMS: -most}, commands.Validation},
		"an overlap above the most":     {store.KeyChange{OverlapMS: most + 1}, commands.Validation},
		"an overlap beyond all numbers": {store.KeyChange{OverlapMS: 1 << 62}, commands.Validation},
		"a revocation without a reason": {store.KeyChange{Revoke: "current"}, commands.Validation},
		"a reason as long as a book":    {store.KeyChange{Revoke: "current", Reason: strings.Repeat("x", 1001)}, commands.Validation},
		"a key that is not there":       {store.KeyChange{Revoke: "ed25519:none", Reason: "copied"}, commands.NotFound},
		"a key named by too little":     {store.KeyChange{Revoke: "e", Reason: "copied"}, commands.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			before, err := s.DB.KeysView(t.Context())
			require.NoError(t, err)

			err = s.DB.ChangeKey(t.Context(), tt.change)

			require.Equal(t, tt.want, commands.CodeOf(err), "%v", err)
			after, err := s.DB.KeysView(t.Context())
			require.NoError(t, err)
			require.Equal(t, before, after)
		})
	}
	require.NoError(t, s.DB.ChangeKey(t.Context(), store.KeyChange{OverlapMS: least}))
	require.NoError(t, s.DB.ChangeKey(t.Context(), store.KeyChange{OverlapMS: most}))
}

// A peer takes no set of more keys, so there never is one. A key that others have
// is ended all the same, also at peers that still wait for an older set.
func TestNoMoreKeysVerifyThanASetNames(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	first := string(s.Signing.KeyID())
	rotate := func() error { return s.DB.ChangeKey(t.Context(), store.KeyChange{}) }
	require.NoError(t, rotate())
	require.NoError(t, s.Exec(`UPDATE own_keys SET removed_at = retired_at, verifies = '0' WHERE kid = $1`, first))
	for range commands.MaxSetKeys - 1 {
		require.NoError(t, rotate())
	}

	rotated := rotate()
	revoked := s.DB.ChangeKey(t.Context(), store.KeyChange{Revoke: first, Reason: "copied"})

	require.Equal(t, commands.Conflict, commands.CodeOf(rotated), "%v", rotated)
	require.NoError(t, revoked)
	v, err := s.DB.KeysView(t.Context())
	require.NoError(t, err)
	require.Len(t, v.Signing, commands.MaxSetKeys+2)
	require.Equal(t, "revoked", v.Signing[commands.MaxSetKeys+1].State)
}

// The peer has taken a key set that the hub's database, restored from a backup,
// knows nothing of. The next one is newer all the same.
func TestAKeySetAfterARestoreIsNewer(t *testing.T) {
	t.Parallel()
	p := &keySets{Pair: storetest.NewPair(t)}
	change := func() (code commands.Code) {
		require.NoError(t, p.Hub.DB.ChangeKey(t.Context(), store.KeyChange{Actor: "test"}))
		_, _, err := p.Hub.DB.TendKeys(t.Context())
		require.NoError(t, err)
		envelopes := p.Hub.Due(t)
		require.Len(t, envelopes, 1)
		return p.take(t, envelopes[0]).Code
	}
	require.Empty(t, change())
	for _, sql := range []string{`UPDATE instance SET keys = 1`, `UPDATE sequences SET told = 1, keyset = NULL`,
		`DELETE FROM own_keys WHERE retired_at IS NULL`, `UPDATE own_keys SET retired_at = NULL, verifies = '0'`} {
		require.NoError(t, p.Hub.Exec(sql))
	}

	require.Empty(t, change())
}

// While the confirmation of one key is looked at, the next one is made: the peer
// knows nothing of that yet.
func TestAKeyThatThePeerHasNotConfirmedSignsNothing(t *testing.T) {
	t.Parallel()
	p := &keySets{Pair: storetest.NewPair(t)}
	require.NoError(t, p.Hub.DB.ChangeKey(t.Context(), store.KeyChange{Actor: "test"}))
	_, _, err := p.Hub.DB.TendKeys(t.Context())
	require.NoError(t, err)
	require.NoError(t, p.Hub.DB.Confirm(t.Context(), p.Hub.Peer, commands.Numbers{Through: 1}))
	eye, hand := connect(t, p.Hub.URL), connect(t, p.Hub.URL)
	sender, err := hand.Begin(t.Context())
	require.NoError(t, err)
	_, err = sender.Exec(t.Context(), `SELECT FROM sequences FOR UPDATE`) // as who seals a message
	require.NoError(t, err)
	type answer struct {
		done []store.Tended
		err  error
	}
	tended := make(chan answer, 1)
	go func() {
		done, _, err := p.Hub.DB.TendKeys(context.Background())
		tended <- answer{done, err}
	}()
	for waits := false; !waits; {
		require.Empty(t, tended, "it ended without waiting")
		require.NoError(t, eye.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waits))
	}

	require.NoError(t, p.Hub.DB.ChangeKey(t.Context(), store.KeyChange{Actor: "test"}))
	require.NoError(t, sender.Rollback(t.Context()))

	got := <-tended
	require.NoError(t, got.err)
	require.Empty(t, got.done)
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM sequences WHERE kid = $1`, p.Hub.Signing.KeyID()), "what the peer knows signs still")
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Admin(url))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}
