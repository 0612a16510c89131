package backlog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// Lists leave out cards that are archived, whatever they are narrowed by, until that is taken back; by its name each is
// found, and counted.
func TestListsLeaveOutArchivedCards(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	spec := func(key string) backlog.TaskSpec {
		return backlog.TaskSpec{Key: key, Title: "t", Lane: "docs", Phase: "build"}
	}
	create(t, b, spec("open"), spec("kept"), spec("done"), spec("gone"))
	_, err := b.Complete(t.Context(), backlog.Act{Task: "done", Result: []byte(`{"so": "it is"}`)})
	require.NoError(t, err)
	for _, key := range []string{"kept", "gone"} {
		_, err := b.Cancel(t.Context(), backlog.Act{Task: key})
		require.NoError(t, err)
	}
	before, err := b.Stats(t.Context())
	require.NoError(t, err)

	_, err = b.Archive(t.Context(), "open", true)
	require.Equal(t, commands.Conflict, commands.CodeOf(err), "it has not ended")
	_, err = b.Archive(t.Context(), "none", true)
	require.Equal(t, commands.NotFound, commands.CodeOf(err))
	for range 2 { // once more changes nothing
		for _, key := range []string{"done", "gone"} {
			v, err := b.Archive(t.Context(), key, true)
			require.NoError(t, err)
			require.NotNil(t, v.ArchivedAt)
		}
	}

	for what, tt := range map[string]struct {
		filter         backlog.Filter
		kept, archived []string
	}{
		"all":        {backlog.Filter{}, []string{"kept", "open"}, []string{"gone", "done"}},
		"of a lane":  {backlog.Filter{Lane: "docs"}, []string{"kept", "open"}, []string{"gone", "done"}},
		"of a phase": {backlog.Filter{Phase: "build"}, []string{"kept", "open"}, []string{"gone", "done"}},
		"ended":      {backlog.Filter{Status: backlog.BoardDone}, []string{"kept"}, []string{"gone", "done"}},
		"cancelled":  {backlog.Filter{State: commands.Cancelled}, []string{"kept"}, []string{"gone"}},
		"completed":  {backlog.Filter{State: commands.Completed}, []string{}, []string{"done"}},
	} {
		require.Equal(t, tt.kept, namesIn(t, b, tt.filter), what)
		tt.filter.Archived = true
		require.Equal(t, tt.archived, namesIn(t, b, tt.filter), what)
	}
	for _, f := range []backlog.Filter{{ReadyOnly: true}, {Owner: "w"}, {State: commands.Queued}, {Status: backlog.BoardBlocked}} {
		f.Archived = true
		_, err := b.List(t.Context(), f)
		require.Equal(t, commands.Validation, commands.CodeOf(err))
	}
	v, err := b.Show(t.Context(), "done")
	require.NoError(t, err)
	require.JSONEq(t, `{"so": "it is"}`, string(v.Result))
	after, err := b.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, before.States, after.States)
	require.Equal(t, 2, s.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.archived' AND workspace = 'main'`))

	v, err = b.Archive(t.Context(), "gone", false)
	require.NoError(t, err)
	require.Nil(t, v.ArchivedAt)
	require.Equal(t, []string{"gone", "kept", "open"}, namesIn(t, b, backlog.Filter{}))
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.unarchived' AND object = $1`, v.ID))
}

// By age, lane and phase what fits is archived, the oldest first and a batch at a time; agents stay for their hub.
func TestArchivingCardsByAgeLaneAndPhase(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	f := scene{t, s, b}.started()
	_, err := s.backlog.Record(t.Context(), []backlog.Progress{{End: &backlog.End{Fence: f, Outcome: commands.Succeeded}}})
	require.NoError(t, err)
	create(t, b, backlog.TaskSpec{Key: "old", Title: "t"}, backlog.TaskSpec{Key: "young", Title: "t"}, backlog.TaskSpec{Key: "docs", Title: "t", Lane: "docs"},
		backlog.TaskSpec{Key: "built", Title: "t", Lane: "docs", Phase: "build"}, backlog.TaskSpec{Key: "open", Title: "t", Lane: "docs", Phase: "build"})
	for _, key := range []string{"old", "young", "docs", "built"} {
		_, err := b.Cancel(t.Context(), backlog.Act{Task: key})
		require.NoError(t, err)
	}
	require.NoError(t, s.Exec(`UPDATE ended SET at = now() - interval '2 hours' WHERE task <> (SELECT id FROM tasks WHERE key = 'young')`))
	for _, tt := range []struct {
		term backlog.ArchiveTerm
		want []string
	}{
		{backlog.ArchiveTerm{Older: 3 * time.Hour}, []string{}},
		{backlog.ArchiveTerm{Lane: "docs", Older: 3 * time.Hour}, []string{}},
		{backlog.ArchiveTerm{Lane: "default", Phase: "build"}, []string{}},
		{backlog.ArchiveTerm{Phase: "build"}, []string{"built"}},
		{backlog.ArchiveTerm{Lane: "docs"}, []string{"built", "docs"}},
		{backlog.ArchiveTerm{Older: time.Hour}, []string{"built", "docs", "old"}},
		{backlog.ArchiveTerm{Older: time.Hour}, []string{"built", "docs", "old"}},
	} {
		n, last, err := b.ArchiveSome(t.Context(), tt.term)
		require.NoError(t, err)
		require.Empty(t, last)
		require.Equal(t, tt.want, namesIn(t, b, backlog.Filter{Archived: true}), "%+v", tt.term)
		require.Equal(t, n > 0, n == 1)
	}
	require.Equal(t, 3, s.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.archived' AND workspace = 'main' AND actor = 'ann'`))
	_, _, err = b.ArchiveSome(t.Context(), backlog.ArchiveTerm{})
	require.Equal(t, commands.Validation, commands.CodeOf(err))

	require.NoError(t, s.Exec(`INSERT INTO tasks (id, class, title, state, ended_at) SELECT lpad(to_hex(n), 32, '0')::uuid, (SELECT class FROM tasks WHERE key = 'old'), 't', 'completed', now() FROM generate_series(1, 1001) AS n`))
	require.NoError(t, s.Exec(`INSERT INTO ended (task, workspace, lane, state, at) SELECT id, workspace, lane, 'completed', now() - CASE id WHEN '00000000-0000-0000-0000-0000000003e9' THEN interval '2 hours' ELSE '0' END FROM tasks WHERE title = 't' AND state = 'completed'`))
	n, last, err := b.ArchiveSome(t.Context(), backlog.ArchiveTerm{Older: time.Hour})
	require.NoError(t, err)
	require.Zero(t, n)
	require.Equal(t, "00000000-0000-0000-0000-0000000003e8", last)
	n, last, err = b.ArchiveSome(t.Context(), backlog.ArchiveTerm{Older: time.Hour, After: last})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Empty(t, last)
}

// A card that is archived and queued again is listed, also when it has ended once more.
func TestARetriedCardIsArchivedNoMore(t *testing.T) {
	t.Parallel()
	b := board(t)
	create(t, b, backlog.TaskSpec{Key: "again", Title: "t"})
	for range 2 {
		_, err := b.Cancel(t.Context(), backlog.Act{Task: "again"})
		require.NoError(t, err)
		require.Equal(t, []string{"again"}, namesIn(t, b, backlog.Filter{}))
		_, err = b.Archive(t.Context(), "again", true)
		require.NoError(t, err)
		require.Empty(t, namesIn(t, b, backlog.Filter{}))
		v, err := b.Retry(t.Context(), backlog.Act{Task: "again"})
		require.NoError(t, err)
		require.Nil(t, v.ArchivedAt)
		require.Equal(t, []string{"again"}, namesIn(t, b, backlog.Filter{}))
	}
}

// What a hub asked for is archived there.
func TestAgentsAreArchivedByTheirHub(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	here := scene{t, s, b}
	f := here.started()
	_, err := s.backlog.Record(t.Context(), []backlog.Progress{{End: &backlog.End{Fence: f, Outcome: commands.Succeeded}}})
	require.NoError(t, err)

	_, err = b.Archive(t.Context(), f.Task, true)
	require.Equal(t, commands.Conflict, commands.CodeOf(err))
	_, err = b.Bound().Archive(t.Context(), f.Task, true)
	require.Equal(t, commands.NotFound, commands.CodeOf(err))
}

func namesIn(t *testing.T, b *backlog.Workspace, f backlog.Filter) []string {
	t.Helper()
	list, err := b.List(t.Context(), f)
	require.NoError(t, err)
	names := []string{}
	for _, v := range list {
		names = append(names, v.Key)
	}
	return names
}
