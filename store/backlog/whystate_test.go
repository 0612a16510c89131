package backlog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// A claim that has run out keeps nobody, and why says so, until a sweep takes it back; a freeze keeps the task all the same.
func TestAClaimThatRanOutKeepsNobody(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	create(t, b, backlog.TaskSpec{Key: "a", Title: "t"})
	claimCards(t, b, nil)
	held, err := b.Why(t.Context(), "a")
	require.NoError(t, err)
	require.False(t, held.Claimable)
	require.Equal(t, "worker-1 holds it with attempt 1", held.Reasons[0].Text)
	require.NoError(t, s.Exec(`UPDATE leases SET until = now(), sweep_at = now()`))

	w, err := b.Why(t.Context(), "a")

	require.NoError(t, err)
	require.True(t, w.Claimable)
	require.Len(t, w.Reasons, 1)
	require.Equal(t, commands.CauseLease, w.Reasons[0].Code)
	require.Equal(t, "the claim of worker-1 ran out; the next claim takes it", w.Reasons[0].Text)
	require.Equal(t, "spawnmesh backlog reclaim --id a", w.Reasons[0].Fix)
	require.Nil(t, w.Reasons[0].Until)
	_, err = b.Freeze(t.Context(), backlog.Freeze{Scope: "workspace", Reason: "no"})
	require.NoError(t, err)
	w, err = b.Why(t.Context(), "a")
	require.NoError(t, err)
	require.False(t, w.Claimable)
	require.Equal(t, []string{"lease", "freeze"}, stages(t, b, "a"))
}

// Of a task that has ended why says by whom and with which words, and what runs it again where it may; who may not see content
// sees no words.
func TestWhySaysHowATaskEnded(t *testing.T) {
	t.Parallel()
	b := board(t)
	const disk = "the disk\nis full"
	tests := map[string]struct {
		end   func(backlog.Fence) error
		said  string
		words string
		again bool
	}{
		"its worker fails":                 {func(f backlog.Fence) error { return second(b.Fail(t.Context(), backlog.Act{Fence: &f, Reason: disk})) }, "failed by ann", ": the disk is full", true},
		"its worker fails, without a word": {func(f backlog.Fence) error { return second(b.Fail(t.Context(), backlog.Act{Fence: &f})) }, "failed by ann", "", true},
		"its operator fails": {func(f backlog.Fence) error {
			return second(b.Fail(t.Context(), backlog.Act{Task: f.Task, Reason: disk}))
		}, "failed by ann", ": the disk is full", true},
		"it is cancelled": {func(f backlog.Fence) error {
			return second(b.Cancel(t.Context(), backlog.Act{Task: f.Task, Reason: disk}))
		}, "cancelled by ann", ": the disk is full", true},
		"it waits, and is failed": {func(f backlog.Fence) error {
			_, err := b.Release(t.Context(), backlog.Act{Fence: &f})
			require.NoError(t, err)
			return second(b.Fail(t.Context(), backlog.Act{Task: f.Task, Reason: disk}))
		}, "failed by ann", ": the disk is full", true},
		"it is done": {func(f backlog.Fence) error { return second(b.Complete(t.Context(), backlog.Act{Fence: &f})) }, "completed by ann", "", false},
	}
	for name, tt := range tests {
		create(t, b, backlog.TaskSpec{Key: name, Title: name})
		claimed := claimCards(t, b, func(c *backlog.ClaimTerms) { c.Task = name })
		require.NoError(t, tt.end(claimed[0].Fence), name)

		w, err := b.Why(t.Context(), name)

		require.NoError(t, err)
		require.False(t, w.Claimable)
		require.Len(t, w.Reasons, 1, name)
		require.Equal(t, "it has ended: "+tt.said+tt.words, w.Reasons[0].Text, name)
		fix := ""
		if tt.again {
			fix = commands.Line("backlog", "retry", name)
		}
		require.Equal(t, fix, w.Reasons[0].Fix, name)
		require.Equal(t, "it has ended: "+tt.said, w.WithoutWords().Reasons[0].Text, name)
	}
}

// Of a task that is paused or blocked why says by whom and with which words, also where its worker gave none.
func TestWhySaysWhoKeepsATask(t *testing.T) {
	t.Parallel()
	b := board(t)
	said := func(key, text, words, fix string) {
		t.Helper()
		w, err := b.Why(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, text+words, w.Reasons[0].Text)
		require.Equal(t, fix, w.Reasons[0].Fix)
		require.Equal(t, text, w.WithoutWords().Reasons[0].Text)
	}
	do := func(_ backlog.Task, err error) { t.Helper(); require.NoError(t, err) }
	create(t, b, backlog.TaskSpec{Key: "a", Title: "t"})

	do(b.Pause(t.Context(), backlog.Act{Task: "a", Reason: "the quarter\nis over"}))
	said("a", "it is paused by ann until somebody resumes it", ": the quarter is over", "spawnmesh backlog resume a")
	do(b.Resume(t.Context(), backlog.Act{Task: "a"}))
	do(b.Block(t.Context(), backlog.Act{Task: "a", Reason: "waiting for legal"}))
	said("a", "it is blocked by ann until somebody unblocks it", ": waiting for legal", "spawnmesh backlog unblock a")
	create(t, b, backlog.TaskSpec{Key: "b", Title: "t"})
	claimed := claimCards(t, b, nil)
	do(b.Block(t.Context(), backlog.Act{Fence: &claimed[0].Fence}))
	said("b", "it is blocked by ann until somebody unblocks it", "", "spawnmesh backlog unblock b")
}
