package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

func TestOrdersThatNobodyAnswersEnd(t *testing.T) {
	t.Parallel()
	const killed = `, kill = '[{"reason": "x"}]', kill_expires_at = now() - interval '3 minutes'`
	for name, tt := range map[string]struct {
		set    string
		state  commands.State
		reason commands.Reason
	}{
		"not before its last moment":               {`expires_at = now() + interval '1 minute'`, commands.Queued, ""},
		"not while clocks may differ":              {`expires_at = now() - interval '1 minute'`, commands.Queued, ""},
		"never answered":                           {`expires_at = now() - interval '3 minutes'`, commands.Expired, commands.CommandExpired},
		"never answered, and to be killed":         {`expires_at = now() - interval '3 minutes'` + killed, commands.Cancelled, commands.KillRequested},
		"never answered, and the kill was refused": {`expires_at = now() - interval '3 minutes', kill = '[{"reason": "x", "state": "refused"}]'`, commands.Expired, commands.CommandExpired},
		"not when it was accepted":                 {`expires_at = now() - interval '3 minutes', accepted_at = now()`, commands.Queued, ""},
		"accepted, and the kill never answered":    {`accepted_at = now(), state = 'running'` + killed, commands.Unavailable, commands.KillRequested},
		"not while the kill may be answered yet":   {`accepted_at = now(), state = 'running', kill = '[{}]', kill_expires_at = now() - interval '1 minute'`, commands.Running, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := storetest.NewPair(t)
			task := p.Order(t, nil)
			require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET `+tt.set))

			ended, err := p.Hub.DB.EndUnanswered(t.Context())

			require.NoError(t, err)
			m := p.Mirror(t, task)
			require.Equal(t, []any{tt.state, tt.reason}, []any{m.State, m.Reason})
			require.Equal(t, tt.state.Terminal(), len(ended) == 1)
			require.Equal(t, len(ended), p.Hub.Count(t, `SELECT count(*) FROM audit WHERE object = $1 AND action = 'mirror.' || $2`, task, tt.state))
		})
	}
}

func TestAKillSaysUntilWhenItMayBeAnswered(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	task := p.Order(t, nil)

	_, err := p.Hub.DB.OrderKill(t.Context(), commands.Kill{Task: task, Reason: "enough"}, time.Hour, "test")

	require.NoError(t, err)
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM mirrors m JOIN outbox o ON o.task = m.task AND o.queue = 'ctl' WHERE abs(extract(epoch FROM o.exp - m.kill_expires_at)) < 5`))
}

func TestManyOrdersEndInBatches(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	orders := make([]store.SpawnOrder, store.EndBatch+3)
	for i := range orders {
		orders[i] = store.SpawnOrder{Conn: p.Hub.Conn.ID, Life: time.Hour, Actor: "test", Spawn: &commands.Spawn{Task: storetest.NewID(), Runtime: commands.RuntimeNoop}}
	}
	_, err := p.Hub.DB.OrderSpawns(t.Context(), orders)
	require.NoError(t, err)
	require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET expires_at = now() - interval '1 hour'`))

	first, err := p.Hub.DB.EndUnanswered(t.Context())
	require.NoError(t, err)
	second, err := p.Hub.DB.EndUnanswered(t.Context())

	require.NoError(t, err)
	require.Equal(t, []int{store.EndBatch, 3}, []int{len(first), len(second)})
}

// An answer that comes after such an end changes nothing, and is there to be
// seen.
func TestALateAnswerIsKept(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	task := p.Order(t, nil)
	asked := p.Spoke.Read(t, p.Hub.Due(t)...)[0]
	require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET expires_at = now() - interval '1 hour'`))
	_, err := p.Hub.DB.EndUnanswered(t.Context())
	require.NoError(t, err)
	require.NoError(t, p.Spoke.DB.Tx(t.Context(), "answering", func(_ context.Context, tx *store.Tx) error {
		asked.Answer(tx, &commands.Result{Task: task, State: commands.Completed, Attempt: 1, Outcome: commands.Succeeded})
		return nil
	}))

	_, err = p.Hub.DB.TakeIn(t.Context(), p.Hub.Conn.ID, 20, p.Hub.Read(t, p.Spoke.Due(t)...), store.MoveMirrors(storetest.Nowhere))

	require.NoError(t, err)
	m := p.Mirror(t, task)
	require.Equal(t, []any{commands.Expired, commands.CommandExpired}, []any{m.State, m.Reason})
	require.Nil(t, m.Result)
	receipts, err := p.Hub.DB.Receipts(t.Context(), task)
	require.NoError(t, err)
	require.Len(t, receipts, 1)
	require.True(t, receipts[0].Late)
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM audit WHERE object = $1 AND action = 'mirror.late'`, task))
}

func TestNothingIsAskedOverAnEndedConnection(t *testing.T) {
	t.Parallel()
	for _, state := range []store.ConnState{store.Revoked, store.Disconnected} {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			p := storetest.NewPair(t)
			task := p.Order(t, nil)
			sent := p.Hub.Count(t, `SELECT count(*) FROM outbox`)
			_, err := p.Hub.DB.SetConnectionState(t.Context(), p.Hub.Conn.ID, state, "gone", "test", func(ctx context.Context, tx *store.Tx, c store.Connection) error {
				return store.EndMirrors(ctx, tx, c.ID)
			})
			require.NoError(t, err)

			_, asking := p.Hub.DB.OrderStatus(t.Context(), task, time.Hour, "test")
			out, err := p.Hub.DB.OrderSpawns(t.Context(), []store.SpawnOrder{{Conn: p.Hub.Conn.ID, Life: time.Hour, Spawn: &commands.Spawn{Task: storetest.NewID()}}})

			require.NoError(t, err)
			require.Equal(t, signing.ConnState, commands.CodeOf(asking), "%v", asking)
			require.Equal(t, signing.ConnState, out[0].Err.Code)
			require.Equal(t, sent, p.Hub.Count(t, `SELECT count(*) FROM outbox`))
			require.Equal(t, state, p.Mirror(t, task).ConnState)
		})
	}
}
