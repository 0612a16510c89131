package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// A database that was restored may have tokens that were revoked since: none of them lets anybody in until an owner confirms
// it, and what had ended in the backup stays so.
func TestARestoreHoldsTheTokens(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	ids := map[string]string{"kept": "aaaaaaaaaaaa", "bad": "bbbbbbbbbbbb", "gone": "cccccccccccc", "old": "dddddddddddd", "other": "eeeeeeeeeeee"}
	for name, id := range ids {
		_, err := s.DB.AddToken(t.Context(), newToken(id, name))
		require.NoError(t, err)
	}
	_, err := s.DB.RevokeToken(t.Context(), "gone", "", "uid:1")
	require.NoError(t, err)
	require.NoError(t, s.Exec(`UPDATE tokens SET expires_at = clock_timestamp() - interval '1 min' WHERE name = 'old'`))
	_, err = s.DB.BeginIncarnation(t.Context(), []string{""}, "one")
	require.NoError(t, err)
	require.NoError(t, use(t, s, ids["kept"], digest), "it was started, not restored")

	for _, nonce := range []string{"two", "three"} { // restored once more, the second finds all as it is to be
		restored, err := s.DB.BeginIncarnation(t.Context(), []string{"another"}, nonce)
		require.NoError(t, err)
		require.True(t, restored)
	}

	states := map[string]store.TokenState{}
	list, err := s.DB.Tokens(t.Context())
	require.NoError(t, err)
	for _, v := range list {
		states[v.Name] = v.State
	}
	require.Equal(t, map[string]store.TokenState{"kept": store.TokenRestored, "bad": store.TokenRestored, "gone": store.TokenRevoked, "old": store.TokenExpired, "other": store.TokenRestored}, states)
	refused := use(t, s, ids["kept"], digest)
	require.Equal(t, commands.Unauthenticated, commands.CodeOf(refused))
	require.ErrorContains(t, refused, "the token kept is from before this instance was restored from a backup")
	valid, err := s.DB.ValidTokens(t.Context(), []string{ids["kept"], ids["bad"]})
	require.NoError(t, err)
	require.Empty(t, valid)
	require.Equal(t, 3, s.Count(t, `SELECT count(*) FROM audit WHERE action = 'token.held'`))
	require.Equal(t, 3, s.Count(t, `SELECT count(DISTINCT object) FROM audit WHERE action = 'token.held' AND actor = 'self' AND object IN ('kept', 'bad', 'other')`))

	_, err = s.DB.RevokeToken(t.Context(), "bad", "once more", "uid:1")
	require.NoError(t, err)
	for range 2 { // again is no error
		v, err := s.DB.ConfirmToken(t.Context(), "kept", "known", "uid:1")
		require.NoError(t, err)
		require.Equal(t, store.TokenValid, v.State)
	}
	for _, name := range []string{"bad", "gone", "old"} {
		_, err := s.DB.ConfirmToken(t.Context(), name, "", "uid:1")
		require.Equal(t, commands.Conflict, commands.CodeOf(err), name)
	}
	_, err = s.DB.ConfirmToken(t.Context(), "nobody", "", "uid:1")
	require.Equal(t, commands.NotFound, commands.CodeOf(err))
	require.NoError(t, use(t, s, ids["kept"], digest))
	require.ErrorContains(t, use(t, s, ids["bad"], digest), "was revoked")
	require.ErrorContains(t, use(t, s, ids["other"], digest), "the token other is from before", "each is confirmed by itself")
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM audit WHERE action = 'token.confirmed' AND object = 'kept' AND why = 'known'`))
}
