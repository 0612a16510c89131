package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// endedAgo ends a mirror so long ago.
func endedAgo(t *testing.T, p *storetest.Pair, task string, ago time.Duration) {
	t.Helper()
	require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET state = 'completed', ended_at = now() - $2::interval, result = '{"so": "it is"}' WHERE task = $1`, task, ago))
}

// listed are the tasks of a list, which the spoke's own has, too.
func listed(t *testing.T, p *storetest.Pair, terms store.MirrorTerms) []string {
	t.Helper()
	var lists [2][]string
	for i, spoke := range []string{"", p.Mirror(t, p.Order(t, nil)).Spoke} {
		terms.Spoke, terms.Limit = spoke, 100
		list, _, err := p.Hub.DB.ListMirrors(t.Context(), terms)
		require.NoError(t, err)
		for _, m := range list {
			if m.EndedAt != nil {
				lists[i] = append(lists[i], m.Task)
			}
		}
	}
	require.Equal(t, lists[0], lists[1])
	return lists[0]
}

// Lists leave out what is archived, until it is taken back; the agent is found by its id, and its result stays.
func TestListsLeaveOutWhatIsArchived(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	web := func(o *store.SpawnOrder) { o.Labels = commands.Labels{"app": "web"} }
	open, kept, old := p.Order(t, web), p.Order(t, web), p.Order(t, web)
	endedAgo(t, p, kept, time.Minute)
	endedAgo(t, p, old, time.Hour)
	var refused *commands.Refused
	require.ErrorAs(t, p.Hub.DB.Archive(t.Context(), open, true, "ann"), &refused, "it has not ended")
	require.Equal(t, commands.Conflict, refused.Code)
	require.Equal(t, []string{"kill", commands.ShortID(open), "--reason", "WHY"}, refused.Run, "as the command takes it")
	require.Equal(t, commands.NotFound, commands.CodeOf(p.Hub.DB.Archive(t.Context(), storetest.NewID(), true, "ann")))
	for range 2 { // once more changes nothing
		require.NoError(t, p.Hub.DB.Archive(t.Context(), old, true, "ann"))
	}

	for _, query := range []string{"", "app=web", "!none"} {
		labels, err := commands.ParseSelector(query)
		require.NoError(t, err)
		require.Equal(t, []string{kept}, listed(t, p, store.MirrorTerms{Labels: labels}), query)
		require.Equal(t, []string{old}, listed(t, p, store.MirrorTerms{Labels: labels, Archived: true}), query)
	}
	m := p.Mirror(t, old)
	require.NotNil(t, m.ArchivedAt)
	require.JSONEq(t, `{"so": "it is"}`, string(m.Result))
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.archived' AND object = $1 AND actor = 'ann'`, old))
	require.NoError(t, p.Hub.DB.Archive(t.Context(), old, false, "ann"))
	require.Equal(t, []string{old, kept}, listed(t, p, store.MirrorTerms{}))
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.unarchived' AND object = $1`, old))
}

// By age and labels what fits is archived, the oldest first.
func TestArchivingByAgeAndLabels(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	young, old, other := p.Order(t, nil), p.Order(t, nil), p.Order(t, func(o *store.SpawnOrder) { o.Labels = commands.Labels{"app": "db"} })
	p.Order(t, nil)
	endedAgo(t, p, young, time.Minute)
	endedAgo(t, p, old, 2*time.Hour)
	endedAgo(t, p, other, 2*time.Hour)
	unlabelled, err := commands.ParseSelector("!app")
	require.NoError(t, err)

	n, last, err := p.Hub.DB.ArchiveSome(t.Context(), store.ArchiveTerm{Older: time.Hour, Labels: unlabelled}, "ann")
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Empty(t, last, "there is nothing more")
	require.Equal(t, []string{old}, listed(t, p, store.MirrorTerms{Archived: true}))
	n, _, err = p.Hub.DB.ArchiveSome(t.Context(), store.ArchiveTerm{Older: time.Hour}, "ann")
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, []string{young}, listed(t, p, store.MirrorTerms{}))
	require.Equal(t, 2, p.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.archived'`))
}

// A batch says where the next one goes on, which looks at nothing before that.
func TestArchivingGoesOnBehindTheLastBatch(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	p.Order(t, nil)
	require.NoError(t, p.Hub.Exec(`INSERT INTO mirrors (task, conn, state, command, command_digest, request_digest, created_by, spec, expires_at, ended_at)
		SELECT gen_random_uuid(), conn, 'completed', gen_random_uuid(), '', '', 'test', '{}', now(), now() FROM mirrors, generate_series(1, $1)`, store.MostArchived+2))

	n, last, err := p.Hub.DB.ArchiveSome(t.Context(), store.ArchiveTerm{}, "ann")
	require.NoError(t, err)
	require.Equal(t, store.MostArchived, n)
	require.Equal(t, n, p.Hub.Count(t, `SELECT count(*) FROM mirrors WHERE archived AND task <= $1`, last))
	require.NoError(t, p.Hub.DB.Archive(t.Context(), last, false, "ann"))
	n, last, err = p.Hub.DB.ArchiveSome(t.Context(), store.ArchiveTerm{After: last}, "ann")
	require.NoError(t, err)
	require.Equal(t, 2, n, "without the last one of those before")
	require.Empty(t, last)
}

// One batch looks at so many agents and no more, whether it finds some to archive or not; where few have a label, at those.
func TestOneBatchOfArchivingIsBounded(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	p.Order(t, nil)
	require.NoError(t, p.Hub.Exec(`INSERT INTO mirrors (task, conn, state, command, command_digest, request_digest, created_by, spec, expires_at, ended_at, labels)
		SELECT lpad(to_hex(n), 32, '0')::uuid, conn, 'completed', gen_random_uuid(), '', '', 'test', '{}', now(), now(), CASE WHEN n > 5000 THEN jsonb_build_object('app', 'web', 'n', n::text) END FROM mirrors, generate_series(1, 5002) AS n`))
	archive := func(labels, after string) (n int, last string) {
		t.Helper()
		s, err := commands.ParseSelector(labels)
		require.NoError(t, err)
		n, last, err = p.Hub.DB.ArchiveSome(t.Context(), store.ArchiveTerm{Labels: s, After: after}, "ann")
		require.NoError(t, err)
		return n, last
	}

	n, last := archive("app=web,n=5001", "")
	require.Equal(t, 1, n)
	require.Empty(t, last)
	n, last = archive("app", "")
	require.Zero(t, n)
	require.Equal(t, "00000000-0000-0000-0000-000000001388", last)
	n, last = archive("app", last)
	require.Equal(t, 1, n)
	require.Empty(t, last)
}

// An agent that has ended gets labels, and nothing else of it changes.
func TestLabelsOfWhatHasEnded(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	task := p.Order(t, func(o *store.SpawnOrder) { o.Labels = commands.Labels{"app": "web", "tier": "a"} })
	endedAgo(t, p, task, time.Minute)
	before := p.Mirror(t, task)

	require.NoError(t, p.Hub.DB.Label(t.Context(), task, commands.Labels{"app": "db", "ticket": ""}, "ann"))

	after := p.Mirror(t, task)
	require.Equal(t, commands.Labels{"app": "db", "tier": "a", "ticket": ""}, after.Labels)
	after.Labels, after.UpdatedAt = before.Labels, before.UpdatedAt
	require.Equal(t, before, after)
	many := commands.Labels{}
	for i := range commands.MaxLabels - 2 {
		many[fmt.Sprint("n", i)] = "v"
	}
	require.Equal(t, commands.Validation, commands.CodeOf(p.Hub.DB.Label(t.Context(), task, many, "ann")), "17 together")
	require.Equal(t, commands.NotFound, commands.CodeOf(p.Hub.DB.Label(t.Context(), storetest.NewID(), commands.Labels{"a": "b"}, "ann")))
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.labelled' AND object = $1 AND why = 'app=db,ticket='`, task))
}
