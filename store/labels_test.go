package store_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// Labels are part of what was asked for, and stay at the hub.
func TestLabelsAreTheHubsOwn(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	labels := commands.Labels{"app": "web", "canary": ""}
	labelled := func(key string, labels commands.Labels) func(*store.SpawnOrder) {
		return func(o *store.SpawnOrder) { o.IdempotencyKey, o.Labels = key, labels }
	}
	first, bare := p.Order(t, labelled("k", labels)), p.Order(t, labelled("", commands.Labels{}))

	require.Equal(t, labels, p.Mirror(t, first).Labels)
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM mirrors WHERE labels IS NULL AND task = $1`, bare), "none take no room")
	for _, m := range p.Spoke.Read(t, p.Hub.Due(t)...) {
		body, err := json.Marshal(m.Body)
		require.NoError(t, err)
		require.NotContains(t, string(body), "canary")
	}
	require.Equal(t, first, p.Order(t, labelled("k", commands.Labels{"canary": "", "app": "web"})), "the same request")
	for _, other := range []commands.Labels{nil, {"app": "web"}, {"app": "db", "canary": ""}} {
		out, err := p.Hub.DB.OrderSpawns(t.Context(), []store.SpawnOrder{{Conn: p.Hub.Conn.ID, Life: time.Hour, Actor: "test", IdempotencyKey: "k", Labels: other,
			Spawn: &commands.Spawn{Task: storetest.NewID(), Runtime: commands.RuntimeExec, Argv: []string{"true"}}}})
		require.NoError(t, err)
		require.Equal(t, commands.Idempotency, commands.CodeOf(out[0].Err), "%v", other)
	}
}

// An order that a hub was told of by its spoke after a restore has no labels; the request for it may be
// repeated all the same.
func TestALabelledOrderIsKnownAgainAfterARestore(t *testing.T) {
	t.Parallel()
	p, task, envelope := forgotten(t)
	adopt(t, p.Hub, envelope)

	require.Nil(t, p.Mirror(t, task).Labels)
	require.Equal(t, task, p.Order(t, func(o *store.SpawnOrder) { o.Spawn.Task, o.Labels = task, commands.Labels{"app": "web"} }))
}

// Of some kills that are ordered together each has its own end.
func TestKillsAreOrderedTogether(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	open, ended, gone := p.Order(t, nil), p.Order(t, nil), storetest.NewID()
	require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET state = 'completed', ended_at = now() WHERE task = $1`, ended))
	also := p.Order(t, nil)

	got, err := p.Hub.DB.OrderKills(t.Context(), []string{open, ended, gone, also}, commands.Kill{Reason: "enough"}, time.Hour, "test")

	require.NoError(t, err)
	require.Equal(t, commands.NotFound, commands.CodeOf(got[2].Err))
	got[2].Err = nil
	require.Equal(t, []store.KillOrdered{{Task: open, Spoke: "attic", Sent: true}, {Task: ended, Spoke: "attic"}, {Task: gone}, {Task: also, Spoke: "attic", Sent: true}}, got)
	require.Equal(t, 2, p.Hub.Count(t, `SELECT count(*) FROM outbox o JOIN mirrors m ON m.kill->0->>'command' = o.id::text AND m.task = o.task WHERE o.kind = 'agent.kill'`))
	list, err := p.Hub.DB.Killable(t.Context(), store.MirrorTerms{})
	require.NoError(t, err)
	require.Empty(t, list, "the end of all is ordered")
}
