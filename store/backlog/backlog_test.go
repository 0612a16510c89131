package backlog_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// side is an instance with its backlog; nothing is told to anybody.
type side struct {
	*storetest.Side
	backlog *backlog.Backlog
}

func newSide(t testing.TB) *side {
	t.Helper()
	return openSide(t, storetest.URL(t), 8)
}

func openSide(t testing.TB, url string, pool int) *side {
	t.Helper()
	s := storetest.OpenSide(t, url, 1, 2, pool)
	return &side{s, backlog.Open(s.DB, nobodyAsks)}
}

func nobodyAsks(context.Context, *store.Tx, []backlog.Moved) error { return nil }

// board is a workspace on a database of its own.
func board(t testing.TB) *backlog.Workspace {
	t.Helper()
	return boardOf(t, newSide(t), backlog.MainWorkspace)
}

func boardOf(t testing.TB, s *side, workspace string) *backlog.Workspace {
	t.Helper()
	b, err := s.backlog.Workspace(workspace, "ann")
	require.NoError(t, err)
	return b
}

func create(t testing.TB, b *backlog.Workspace, specs ...backlog.TaskSpec) []backlog.Created {
	t.Helper()
	out, err := b.Create(t.Context(), specs...)
	require.NoError(t, err)
	return out
}

func claimCards(t testing.TB, b *backlog.Workspace, change func(*backlog.ClaimTerms)) []backlog.Claimed {
	t.Helper()
	terms := backlog.ClaimTerms{Owner: "worker-1", Limit: 100, Lease: 10 * time.Minute}
	if change != nil {
		change(&terms)
	}
	list, err := b.Claim(t.Context(), terms)
	require.NoError(t, err)
	return list
}

func keys(list []backlog.Claimed) []string {
	names := []string{}
	for _, c := range list {
		names = append(names, c.Key)
	}
	return names
}

// now is the time by the clock of the database.
func now(t testing.TB, s *side) time.Time {
	t.Helper()
	at, err := s.DB.Now(t.Context())
	require.NoError(t, err)
	return at
}

func show(t testing.TB, b *backlog.Workspace, ref string) backlog.Task {
	t.Helper()
	task, err := b.Show(t.Context(), ref)
	require.NoError(t, err)
	return task
}

// A session from creation to completion, as an example.
func TestTheExampleSession(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b, began := boardOf(t, s, backlog.MainWorkspace), now(t, s)
	create(t, b, backlog.TaskSpec{Key: "A1", Title: "schema", Priority: 5})
	create(t, b, backlog.TaskSpec{Key: "A2", Title: "service", DependsOn: []string{"A1"}, Priority: 9})

	made := show(t, b, "A1")
	require.WithinRange(t, made.CreatedAt, began, now(t, s))
	require.WithinRange(t, made.UpdatedAt, made.CreatedAt, now(t, s))

	first := claimCards(t, b, func(c *backlog.ClaimTerms) { c.Limit, c.Lease = 1, 0 })
	require.Equal(t, []string{"A1"}, keys(first), "A2 is gated on A1")
	held := show(t, b, "A1")
	require.WithinDuration(t, held.ClaimedAt.Add(900*time.Second), *held.LeaseUntil, time.Minute, "who asks for no other lease holds it for 900 s")
	require.Equal(t, made.CreatedAt, held.CreatedAt)
	require.True(t, held.UpdatedAt.After(made.UpdatedAt), "a claim changes the task")
	require.Empty(t, claimCards(t, b, nil))
	g, err := b.VerifyGrant(t.Context(), first[0].Grant)
	require.NoError(t, err)
	require.Equal(t, first[0].Fence, g.Fence)

	done, err := b.Complete(t.Context(), backlog.Act{Task: "A1"})
	require.NoError(t, err)
	require.Equal(t, backlog.BoardDone, done.Status)
	require.Equal(t, made.CreatedAt, done.CreatedAt)
	require.True(t, done.UpdatedAt.After(held.UpdatedAt), "its end changes it again")
	ready, err := b.List(t.Context(), backlog.Filter{ReadyOnly: true})
	require.NoError(t, err)
	require.Len(t, ready, 1)
	require.Equal(t, "A2", ready[0].Key)
	require.Equal(t, backlog.EligibleReady, ready[0].Eligibility)

	second := claimCards(t, b, nil)
	require.Equal(t, []string{"A2"}, keys(second))
	back, err := b.Reclaim(t.Context(), "A2")
	require.NoError(t, err)
	require.Equal(t, commands.Queued, back[0].State)
	_, err = b.Complete(t.Context(), backlog.Act{Fence: &second[0].Fence})
	require.Equal(t, commands.StaleAttempt, commands.CodeOf(err), "%v", err)

	third := claimCards(t, b, nil)
	_, err = b.Complete(t.Context(), backlog.Act{Fence: &third[0].Fence, Result: []byte(`{"ok":true}`)})
	require.NoError(t, err)
	again, err := b.Complete(t.Context(), backlog.Act{Fence: &third[0].Fence})
	require.NoError(t, err, "a repeated terminal word gets the same answer")
	require.JSONEq(t, `{"ok":true}`, string(again.Result))
	stats, err := b.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(2), stats.Status[backlog.BoardDone])
	require.Zero(t, stats.Claimable)
}

func TestAnAgeIsNeverNegative(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	create(t, b, backlog.TaskSpec{Key: "a", Title: "a"})
	require.NoError(t, s.Exec(`UPDATE tasks SET created_at = now() + interval '1 hour'`)) // the clock was set back

	stats, err := b.Stats(t.Context())

	require.NoError(t, err)
	require.Zero(t, stats.OldestAge)
}
