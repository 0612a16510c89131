package store_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

var digest = bytes.Repeat([]byte{7}, 32)

func newToken(id, name string) store.NewToken {
	return store.NewToken{ID: id, Digest: digest, Name: name, Role: "viewer", Workspace: "*", Life: time.Hour, Actor: "uid:1"}
}

// A token lets in who has its secret, until it is revoked or its time is over; who does not have it is
// told nothing else of one that is there than of one that is not.
func TestATokenLetsInWhoHasItsSecret(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	ctx := t.Context()
	const id = "abcdefghijkl"
	expires, err := s.DB.AddToken(ctx, newToken(id, "ci"))
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(time.Hour), expires, time.Minute)

	u, err := s.DB.UseToken(ctx, id, digest)

	require.NoError(t, err)
	require.Equal(t, "ci viewer *", u.Name+" "+u.Role+" "+u.Workspace)
	none, wrong := use(t, s, "aaaaaaaaaaaa", digest), use(t, s, id, bytes.Repeat([]byte{8}, 32))
	require.Equal(t, none, wrong)
	require.Equal(t, commands.Unauthenticated, commands.CodeOf(none))
	list, err := s.DB.Tokens(ctx)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.NotNil(t, list[0].UsedAt)

	valid, err := s.DB.ValidTokens(ctx, []string{id, "aaaaaaaaaaaa"})
	require.NoError(t, err)
	require.Equal(t, []string{id}, valid)
	for range 2 { // again is no error
		v, err := s.DB.RevokeToken(ctx, "ci", "it was mailed around", "uid:1")
		require.NoError(t, err)
		require.Equal(t, store.TokenRevoked, v.State)
	}
	require.ErrorContains(t, use(t, s, id, digest), "the token ci was revoked")
	require.Equal(t, none, use(t, s, id, bytes.Repeat([]byte{8}, 32)))
	valid, err = s.DB.ValidTokens(ctx, []string{id})
	require.NoError(t, err)
	require.Empty(t, valid)
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM audit WHERE action = 'token.revoked' AND object = 'ci' AND actor = 'uid:1' AND why = 'it was mailed around'`))
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM audit WHERE action = 'token.created' AND object = 'ci' AND why LIKE 'id abcdefghijkl, viewer in *, until %'`))
}

func use(t *testing.T, s *storetest.Side, id string, digest []byte) error {
	t.Helper()
	_, err := s.DB.UseToken(t.Context(), id, digest)
	return err
}

// The audit names tokens by their names, so no two that can be used have one.
func TestANameIsThatOfOneToken(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	add := func(v store.NewToken) error {
		_, err := s.DB.AddToken(t.Context(), v)
		return err
	}
	require.NoError(t, add(newToken("aaaaaaaaaaaa", "ci")))

	require.Equal(t, commands.Conflict, commands.CodeOf(add(newToken("bbbbbbbbbbbb", "ci"))))

	_, err := s.DB.RevokeToken(t.Context(), "aaaaaaaaaaaa", "", "uid:1")
	require.NoError(t, err)
	short := newToken("bbbbbbbbbbbb", "ci")
	short.Life = time.Millisecond
	require.NoError(t, add(short), "the first one is revoked")
	require.Eventually(t, func() bool {
		err = add(newToken("cccccccccccc", "ci"))
		return err == nil
	}, 10*time.Second, 10*time.Millisecond, "the second one has expired: %v", err)
	require.ErrorContains(t, use(t, s, "bbbbbbbbbbbb", digest), "the token ci has expired")
	_, err = s.DB.RevokeToken(t.Context(), "bbbbbbbbbbbb", "", "uid:1")
	require.Equal(t, commands.Conflict, commands.CodeOf(err), "it has expired: %v", err)
	v, err := s.DB.RevokeToken(t.Context(), "ci", "", "uid:1")
	require.NoError(t, err)
	require.Equal(t, "cccccccccccc", v.ID, "the name is that of the one that can be used")
	_, err = s.DB.RevokeToken(t.Context(), "no", "", "uid:1")
	require.Equal(t, commands.NotFound, commands.CodeOf(err))
	for _, wrong := range []store.NewToken{newToken("dddddddddddd", "CI"), newToken("dddddddddddd", ""), {ID: "dddddddddddd", Digest: digest, Name: "x", Role: "viewer", Workspace: "a b", Life: time.Hour, Actor: "a"}} {
		require.Equal(t, commands.Validation, commands.CodeOf(add(wrong)), wrong.Name)
	}
}

// The use of a token is noted once a minute, not with each request.
func TestAUseIsNotedOnceAMinute(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	_, err := s.DB.AddToken(t.Context(), newToken("aaaaaaaaaaaa", "ci"))
	require.NoError(t, err)
	noted := func(age string) bool {
		require.NoError(t, s.Exec(`UPDATE tokens SET used_at = clock_timestamp() - $1::interval`, age))
		before := s.Count(t, `SELECT count(*) FROM tokens WHERE used_at > clock_timestamp() - interval '5 s'`)
		require.Zero(t, before)
		require.NoError(t, use(t, s, "aaaaaaaaaaaa", digest))
		return s.Count(t, `SELECT count(*) FROM tokens WHERE used_at > clock_timestamp() - interval '5 s'`) == 1
	}

	require.False(t, noted("30 s"))
	require.True(t, noted("61 s"))
}

// Tokens go a month after their time.
func TestOldTokensAreForgotten(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	for _, v := range []store.NewToken{newToken("aaaaaaaaaaaa", "old"), newToken("bbbbbbbbbbbb", "new")} {
		_, err := s.DB.AddToken(t.Context(), v)
		require.NoError(t, err)
	}
	require.NoError(t, s.Exec(`UPDATE tokens SET expires_at = clock_timestamp() - interval '31 d' WHERE name = 'old'`))

	removed, err := s.DB.Prune(context.WithoutCancel(t.Context()), time.Minute, 10*time.Second)

	require.NoError(t, err)
	require.EqualValues(t, 1, removed["tokens"])
}
