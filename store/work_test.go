package store_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// A spoke brings what the results of its own tasks name, and nothing else; what it has brought is its own alone.
func TestASpokeBringsWhatItsResultsName(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	task, conn, left := p.Order(t, nil), p.Hub.Conn.ID, blobOf(100)
	_, _, err := p.Hub.DB.WorkDue(t.Context(), conn, left.Digest, 1000)
	require.Equal(t, commands.NotFound, commands.CodeOf(err), "no result names it")
	bundle := &commands.Bundle{Blob: left, Base: strings.Repeat("1", 40), Tip: strings.Repeat("2", 40), Commits: 1}

	takenIn(t, p, reports(t, p, task, &commands.Result{Task: task, State: commands.Completed, Attempt: 1, Outcome: commands.Succeeded, Bundle: bundle})...)

	size, held, err := p.Hub.DB.WorkDue(t.Context(), conn, left.Digest, 1000)
	require.NoError(t, err)
	require.Equal(t, []any{left.Size, false}, []any{size, held})
	_, _, err = p.Hub.DB.WorkDue(t.Context(), conn, left.Digest, 99)
	require.Equal(t, commands.PayloadTooLarge, commands.CodeOf(err))
	_, _, err = p.Hub.DB.WorkDue(t.Context(), storetest.NewID(), left.Digest, 1000)
	require.Equal(t, commands.NotFound, commands.CodeOf(err), "another connection's")
	here, err := p.Hub.DB.WorkHere(t.Context(), task, left)
	require.NoError(t, err)
	require.False(t, here)

	require.NoError(t, p.Hub.DB.KeepBlob(t.Context(), left, "test"))
	here, err = p.Hub.DB.WorkHere(t.Context(), task, left)
	require.NoError(t, err)
	require.False(t, here, "the same bytes, given by somebody else")
	require.NoError(t, p.Hub.DB.WorkCame(t.Context(), conn, left))
	require.NoError(t, p.Hub.DB.WorkCame(t.Context(), conn, left), "twice is once")

	_, held, err = p.Hub.DB.WorkDue(t.Context(), conn, left.Digest, 0)
	require.NoError(t, err)
	require.True(t, held, "what is held needs no room")
	here, err = p.Hub.DB.WorkHere(t.Context(), task, left)
	require.NoError(t, err)
	require.True(t, here)
}

// A result that comes after the end of its task is evidence, and what it names is taken as any other: its spoke has it until then.
func TestALateResultIsBrought(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	task := p.Order(t, nil)
	bundle := &commands.Bundle{Blob: blobOf(100), Base: strings.Repeat("1", 40), Tip: strings.Repeat("2", 40), Commits: 1}
	takenIn(t, p, reports(t, p, task, &commands.Result{Task: task, State: commands.Completed, Attempt: 1, Outcome: commands.Succeeded})...)

	late := reports(t, p, task, &commands.Result{Task: task, State: commands.Failed, Attempt: 1, Outcome: commands.AttemptFailed, Exit: commands.Exit{Code: 3}, Bundle: bundle})
	_, err := p.Hub.DB.TakeIn(t.Context(), p.Hub.Conn.ID, 20, late, store.MoveMirrors(storetest.Nowhere))
	require.NoError(t, err)
	require.Equal(t, commands.ResultClash, late[0].Code)

	size, held, err := p.Hub.DB.WorkDue(t.Context(), p.Hub.Conn.ID, bundle.Digest, 1000)
	require.NoError(t, err)
	require.Equal(t, []any{bundle.Size, false}, []any{size, held})
	require.NoError(t, p.Hub.DB.WorkCame(t.Context(), p.Hub.Conn.ID, bundle.Blob))
	was, err := p.Hub.DB.WorkLost(t.Context(), task, bundle.Blob)
	require.NoError(t, err)
	require.True(t, was)
	was, err = p.Hub.DB.WorkLost(t.Context(), task, bundle.Blob)
	require.NoError(t, err)
	require.False(t, was, "it is asked for once")
}
