package meshtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// pair is two databases without a link between them: the rooms decide, and the
// test carries what they say.
type pair struct {
	*storetest.Pair
	backlog *backlog.Backlog // of the spoke
}

func newPair(t testing.TB) *pair {
	t.Helper()
	p := storetest.NewPair(t)
	return &pair{p, backlog.Open(p.Spoke.DB, spoke.Answer)}
}

// takeSome lets the spoke take in messages that were read.
func (p *pair) takeSome(t testing.TB, batch []*store.Incoming) store.TakenIn {
	t.Helper()
	taken, err := p.Spoke.DB.TakeIn(t.Context(), p.Spoke.Conn.ID, 20, batch, func(ctx context.Context, tx *store.Tx, from store.Standing, fresh []*store.Incoming) error {
		return spoke.Take(ctx, p.backlog, tx, from, fresh)
	})
	require.NoError(t, err)
	return taken
}

func (p *pair) take(t testing.TB, envelopes ...[]byte) store.TakenIn {
	t.Helper()
	return p.takeSome(t, p.Spoke.Read(t, envelopes...))
}

func (p *pair) toSpoke(t testing.TB) []*store.Incoming {
	t.Helper()
	batch := p.Spoke.Read(t, p.Hub.Due(t)...)
	p.takeSome(t, batch)
	return batch
}

// report lets the hub take in messages, and the spoke hear what is stored.
func (p *pair) report(t testing.TB, envelopes ...[]byte) []*store.Incoming {
	t.Helper()
	batch := p.Hub.Read(t, envelopes...)
	taken, err := p.Hub.DB.TakeIn(t.Context(), p.Hub.Conn.ID, 20, batch, store.MoveMirrors(storetest.Nowhere))
	require.NoError(t, err)
	if taken.Stored.Through > 0 {
		require.NoError(t, p.Spoke.DB.Confirm(t.Context(), p.Spoke.Peer, taken.Stored))
	}
	return batch
}

func (p *pair) toHub(t testing.TB) []*store.Incoming {
	t.Helper()
	return p.report(t, p.Spoke.Due(t)...)
}

func (p *pair) claim(t testing.TB, n int) []backlog.Claimed {
	t.Helper()
	list, err := p.backlog.Claim(t.Context(), backlog.ClaimTerms{Owner: "w", Limit: n, Lease: time.Minute})
	require.NoError(t, err)
	return list
}

func (p *pair) start(t testing.TB, c backlog.Claimed) {
	t.Helper()
	held, err := p.backlog.Record(t.Context(), []backlog.Progress{{Start: &backlog.Start{Fence: c.Fence, Pid: 1, BootID: "b"}}})
	require.NoError(t, err)
	require.Equal(t, []bool{true}, held)
}

func (p *pair) end(t testing.TB, f backlog.Fence, o commands.Outcome) bool {
	t.Helper()
	held, err := p.backlog.Record(t.Context(), []backlog.Progress{{End: &backlog.End{Fence: f, Outcome: o}}})
	require.NoError(t, err)
	return held[0]
}

func TestOneSpawnFromOrderToResult(t *testing.T) {
	t.Parallel()
	p := newPair(t)

	task := p.Order(t, nil)
	p.toSpoke(t)
	p.toHub(t)
	require.NotNil(t, p.Mirror(t, task).AcceptedAt)
	c := p.claim(t, 5)
	require.Len(t, c, 1)
	require.Equal(t, []string{"true"}, c[0].Spec.Argv)
	p.start(t, c[0])
	p.toHub(t)
	require.Equal(t, commands.Running, p.Mirror(t, task).State)
	require.True(t, p.end(t, c[0].Fence, commands.Succeeded))
	p.toHub(t)

	m := p.Mirror(t, task)
	require.Equal(t, commands.Completed, m.State)
	require.Contains(t, string(m.Result), `"summary": "completed"`)
	require.Zero(t, p.Hub.Count(t, `SELECT count(*) FROM open_outbox`), "the spoke's answers confirm the order")
	require.Zero(t, p.Spoke.Count(t, `SELECT count(*) FROM open_outbox`), "the hub's notes confirm the answers")
	require.Zero(t, p.Spoke.Count(t, `SELECT count(*) FROM leases`))
	receipts, err := p.Hub.DB.Receipts(t.Context(), task)
	require.NoError(t, err)
	var kinds []string
	for _, r := range receipts {
		kinds = append(kinds, r.Kind)
	}
	require.Equal(t, []string{"agent.accepted", "agent.started", "agent.result"}, kinds)
}

func TestReportsInAnyOrderAndManyTimesHaveOneEffect(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	task := p.Order(t, nil)
	p.toSpoke(t)
	c := p.claim(t, 1)
	p.start(t, c[0])
	p.end(t, c[0].Fence, commands.Succeeded)
	envelopes := p.Spoke.Due(t)
	require.Len(t, envelopes, 3)

	for _, i := range []int{2, 0, 2, 1, 0, 1} {
		p.report(t, envelopes[i])
		require.Equal(t, commands.Completed, p.Mirror(t, task).State, "the result came first")
	}

	m := p.Mirror(t, task)
	require.NotNil(t, m.AcceptedAt)
	require.NotNil(t, m.StartedAt)
	require.Equal(t, 3, p.Hub.Count(t, `SELECT count(*) FROM inbox`))
}

func TestACommandManyTimesHasOneEffect(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.Order(t, nil)
	envelope := p.Hub.Due(t)[0]

	first := p.take(t, envelope, envelope)
	require.Empty(t, first.Again, "the answer is on its way with this very transaction")
	for range 10 {
		again := p.take(t, envelope)
		require.Len(t, again.Again, 1, "the stored receipt goes out again")
	}

	require.Equal(t, 1, p.Spoke.Count(t, `SELECT count(*) FROM tasks`))
	require.Len(t, p.Spoke.Due(t), 1)
}

// A message whose data the database will never take must not hold up the others.
func TestAPoisonousMessageIsBuriedAlone(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	for range 5 {
		p.Order(t, nil)
	}
	batch := p.Spoke.Read(t, p.Hub.Due(t)...)
	batch[2].Body.(*commands.Spawn).Title = "a\x00b"

	p.takeSome(t, batch)

	require.Equal(t, commands.Internal, batch[2].Code)
	require.Equal(t, 4, p.Spoke.Count(t, `SELECT count(*) FROM tasks`))
	require.Equal(t, 1, p.Spoke.Count(t, `SELECT count(*) FROM audit WHERE action = 'message.poisonous' AND message = $1`, batch[2].Header.ID))
	require.Len(t, p.claim(t, 10), 4)
}

func TestConnectionStatesDecideInTheTransaction(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		state       store.ConnState
		spawn, kill signing.Code
	}{
		"suspended": {store.Suspended, signing.ConnState, ""},
		"revoked":   {store.Revoked, signing.ConnState, signing.ConnState},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			task := p.Order(t, nil)
			_, err := p.Hub.DB.OrderKill(t.Context(), commands.Kill{Task: task, Reason: "x"}, time.Hour, "test")
			require.NoError(t, err)
			_, err = p.Spoke.DB.SetConnectionState(t.Context(), p.Spoke.Conn.ID, tt.state, "test", "test", nil)
			require.NoError(t, err)

			taken := p.toSpoke(t)

			require.Equal(t, tt.spawn, taken[0].Code)
			require.Equal(t, tt.kill, taken[1].Code)
			require.Zero(t, p.Spoke.Count(t, `SELECT count(*) FROM tasks`))
			require.Equal(t, 1, p.Spoke.Count(t, `SELECT count(*) FROM audit WHERE action = 'message.refused' AND code = 'CONN_STATE' AND message = $1`,
				p.Mirror(t, task).Command))
		})
	}
}
