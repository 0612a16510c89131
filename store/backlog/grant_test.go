package backlog_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

func TestGrantsFailEachInItsWay(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, "main")
	create(t, b, backlog.TaskSpec{Key: "a", Title: "a"}, backlog.TaskSpec{Key: "b", Title: "b"})
	a := claimCards(t, b, func(c *backlog.ClaimTerms) { c.Task = "a" })[0]
	other := claimCards(t, b, func(c *backlog.ClaimTerms) { c.Task = "b" })[0]
	parts := strings.Split(a.Grant, ".")
	with := func(i int, s string) string {
		list := append([]string{}, parts...)
		list[i] = s
		return strings.Join(list, ".")
	}
	code := func(grant string) commands.Code {
		return commands.CodeOf(second(b.VerifyGrant(t.Context(), grant)))
	}

	for name, tt := range map[string]struct {
		grant string
		code  commands.Code
	}{
		"as it was given":          {a.Grant, ""},
		"empty":                    {"", commands.GrantMalformed},
		"cut":                      {a.Grant[:len(a.Grant)-1], commands.GrantMalformed},
		"longer":                   {a.Grant + "A", commands.GrantMalformed},
		"of another version":       {with(0, "cg2"), commands.GrantMalformed},
		"with an unknown key":      {with(1, "ffffffffffffffff"), commands.GrantKeyUnknown},
		"for another task":         {with(2, other.Fence.Task), commands.GrantMismatch},
		"for another attempt":      {with(3, "2"), commands.GrantMismatch},
		"for another epoch":        {with(4, "2"), commands.GrantMismatch},
		"good for longer":          {with(5, "9999999999999"), commands.GrantMismatch},
		"with another's signature": {with(6, strings.Split(other.Grant, ".")[6]), commands.GrantMismatch},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tt.code, code(tt.grant)) })
	}
	for i := range len(a.Grant) * 8 {
		raw := []byte(a.Grant)
		raw[i/8] ^= 1 << (i % 8)
		require.NotEmpty(t, code(string(raw)), "bit %d of byte %d", i%8, i/8)
	}

	_, err := b.Release(t.Context(), backlog.Act{Fence: &a.Fence})
	require.NoError(t, err)
	require.Equal(t, commands.GrantUnknown, code(a.Grant), "the attempt has ended")
	short := claimCards(t, b, func(c *backlog.ClaimTerms) { c.Task, c.Lease = "a", time.Second })[0]
	require.Eventually(t, func() bool { return code(short.Grant) == commands.GrantExpired }, 5*time.Second, 50*time.Millisecond)
}

func TestGrantKeysRotateWithOverlap(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, "main")
	create(t, b, backlog.TaskSpec{Key: "a", Title: "a"}, backlog.TaskSpec{Key: "b", Title: "b"})
	before := claimCards(t, b, func(c *backlog.ClaimTerms) { c.Task = "a" })[0]

	kid, err := b.RotateGrantKey(t.Context())
	require.NoError(t, err)
	after := claimCards(t, b, func(c *backlog.ClaimTerms) { c.Task = "b" })[0]

	g, err := b.VerifyGrant(t.Context(), after.Grant)
	require.NoError(t, err)
	require.Equal(t, kid, g.KeyID)
	g, err = b.VerifyGrant(t.Context(), before.Grant)
	require.NoError(t, err, "what the old key signed is good until it expires")
	require.NotEqual(t, kid, g.KeyID)
	require.NoError(t, s.Exec(`UPDATE grant_keys SET signs_until = now() - interval '2 days', verifies_until = now() - interval '1 day' WHERE kid = $1`, g.KeyID))
	_, err = b.VerifyGrant(t.Context(), before.Grant)
	require.Equal(t, commands.GrantKeyUnknown, commands.CodeOf(err), "%v", err)
	_, err = s.DB.Prune(t.Context(), 0, time.Minute)
	require.NoError(t, err)
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM grant_keys`))
}

// A claim that nobody took up goes back, and its grant with it.
func TestAnUnusedClaimGoesBack(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, "main")
	create(t, b, backlog.TaskSpec{Key: "a", Title: "a"})
	c := claimCards(t, b, nil)[0]
	require.NoError(t, s.Exec(`UPDATE leases SET (until, sweep_at) = (now() - interval '1 second', '-infinity')`))
	stats, err := b.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(1), stats.ExpiredClaims)

	swept, err := b.Sweep(t.Context())

	require.NoError(t, err)
	require.Equal(t, 1, swept.Reclaimed)
	_, err = b.VerifyGrant(t.Context(), c.Grant)
	require.Equal(t, commands.GrantUnknown, commands.CodeOf(err), "%v", err)
	task, err := b.Show(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, []any{commands.Queued, commands.LeaseExpired, 1, ""}, []any{task.State, task.Reason, task.Attempts, task.Owner})
	again := claimCards(t, b, nil)[0]
	require.Equal(t, "reclaim", again.Type)
	require.Equal(t, 2, again.Fence.Attempt)
}

// The last grant that a key has signed is good until it expires, also where keys are kept no longer than they must.
func TestTheLastGrantOfAKeyIsGoodUntilItExpires(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, "main")
	create(t, b, backlog.TaskSpec{Key: "a", Title: "a"})
	c := claimCards(t, b, func(c *backlog.ClaimTerms) { c.Lease = backlog.MaxLease })[0]
	for _, k := range store.Kinds {
		if k.Name == "grant-keys" {
			require.NoError(t, s.DB.SetRetention(t.Context(), k.Name, k.Least, "test"))
		}
	}
	require.NoError(t, s.Exec(`UPDATE grant_keys SET (signs_until, verifies_until) = (now() - $1::interval, now() - $1::interval + (verifies_until - signs_until))`, backlog.MaxLease-5*time.Minute))

	_, err := s.DB.Prune(t.Context(), 0, time.Minute)

	require.NoError(t, err)
	_, err = b.VerifyGrant(t.Context(), c.Grant)
	require.NoError(t, err)
}
