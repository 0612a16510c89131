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

// forgotten is a pair whose hub was restored to before an order that the spoke has.
func forgotten(t *testing.T) (p *storetest.Pair, task string, envelope []byte) {
	t.Helper()
	p = storetest.NewPair(t)
	task = p.Order(t, nil)
	envelope = p.Hub.Due(t)[0]
	take(t, p.Spoke, p.Spoke.Read(t, envelope))
	require.NoError(t, p.Hub.Exec(`DELETE FROM mirrors`))
	require.NoError(t, p.Hub.Exec(`DELETE FROM outbox`))
	return p, task, envelope
}

func adopt(t *testing.T, s *storetest.Side, envelopes ...[]byte) { adoptFrom(t, s, 1, envelopes...) }

// adoptFrom takes over orders from number from on, and returns why some are strange.
func adoptFrom(t *testing.T, s *storetest.Side, from int64, envelopes ...[]byte) (strange []error) {
	t.Helper()
	require.NoError(t, s.DB.Tx(t.Context(), "taking over orders", func(ctx context.Context, tx *store.Tx) (err error) {
		strange, err = tx.Adopt(ctx, s.Conn, from, envelopes)
		return err
	}))
	return strange
}

func TestAForgottenOrderIsTakenOver(t *testing.T) {
	t.Parallel()
	p, task, envelope := forgotten(t)

	adopt(t, p.Hub, envelope)
	adopt(t, p.Hub, envelope)

	require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET expires_at = now() - interval '1 hour'`))
	late, err := p.Hub.DB.EndUnanswered(t.Context())
	require.NoError(t, err)
	require.Empty(t, late, "the spoke has taken it in")
	m := p.Mirror(t, task)
	require.Equal(t, commands.Queued, m.State)
	require.Equal(t, "restored", m.CreatedBy)
	require.Zero(t, p.Hub.Count(t, `SELECT count(*) FROM open_outbox`), "the spoke has it")
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.restored'`))
}

// Both sides may be restored, one after the other: the spoke may lose an order that the
// hub has only from it.
func TestAnOrderThatWasTakenOverIsSentAgainWhenThePeerLosesIt(t *testing.T) {
	t.Parallel()
	p, _, envelope := forgotten(t)
	adopt(t, p.Hub, envelope)

	a, err := p.Hub.DB.Compare(t.Context(), p.Hub.Peer, commands.Numbering{}, 0, 20)

	require.NoError(t, err)
	require.Equal(t, 1, a.Reopened)
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM open_outbox WHERE envelope = $1`, envelope))
}

// A report that came before its order was known again had no effect: it has to
// come once more.
func TestWhatWasSaidOfAForgottenOrderIsAskedForAgain(t *testing.T) {
	t.Parallel()
	p, task, envelope := forgotten(t)
	asked := p.Spoke.Read(t, envelope)[0]
	require.NoError(t, p.Spoke.DB.Tx(t.Context(), "answering", func(_ context.Context, tx *store.Tx) error {
		asked.Answer(tx, &commands.Accepted{Task: task, State: commands.Queued})
		return nil
	}))
	take(t, p.Hub, p.Hub.Read(t, p.Spoke.Due(t)...))
	before, err := p.Hub.DB.Numbering(t.Context(), p.Hub.Conn.ID, false, nil)
	require.NoError(t, err)
	require.Equal(t, commands.Numbers{Through: 1}, before.Stored)

	adopt(t, p.Hub, envelope)

	after, err := p.Hub.DB.Numbering(t.Context(), p.Hub.Conn.ID, false, nil)
	require.NoError(t, err)
	require.Equal(t, commands.Numbers{}, after.Stored)
	require.Zero(t, p.Hub.Count(t, `SELECT count(*) FROM inbox`))
}

// Whoever restored the hub may have given the order once more before the spoke was
// heard.
func TestAnOrderGivenAgainBecomesTheOldOne(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(o *store.SpawnOrder){
		"the same":    func(*store.SpawnOrder) {},
		"for longer":  func(o *store.SpawnOrder) { o.Life *= 2 },
		"in a trace":  func(o *store.SpawnOrder) { o.Spawn.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" },
		"another one": func(o *store.SpawnOrder) { o.Spawn.Title = "another" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, task, envelope := forgotten(t)
			require.NoError(t, p.Hub.Exec(`UPDATE sequences SET last = 1000, base = 1000`))
			p.Order(t, func(o *store.SpawnOrder) { o.Spawn.Task = task; change(o) })

			adopt(t, p.Hub, envelope)

			same := name != "another one"
			first := p.Hub.Count(t, `SELECT count(*) FROM mirrors WHERE task = $1 AND command = $2`, task, p.Spoke.Read(t, envelope)[0].Header.ID) == 1
			require.Equal(t, same, first)
			require.Equal(t, same, p.Hub.Count(t, `SELECT count(*) FROM open_outbox`) == 0, "what the spoke has is not sent again")
		})
	}
}

func TestNobodyElseMakesOrders(t *testing.T) {
	t.Parallel()
	p, task, envelope := forgotten(t)
	h := p.Spoke.Read(t, envelope)[0].Header
	body := []byte(`{"task":"` + task + `","runtime":"noop"}`)
	stranger, err := p.Spoke.Signing.Seal(signing.Command, h, body)
	require.NoError(t, err)
	report, err := p.Hub.Signing.Seal(signing.Command, signing.Header{ID: storetest.NewID(), Kind: string(commands.StatusKind), Iss: h.Iss, Aud: h.Aud, Conn: h.Conn, Epoch: h.Epoch,
		Seq: 9, Iat: h.Iat, Exp: h.Exp, Wsp: h.Wsp}, []byte(`{"task":"`+task+`"}`))
	require.NoError(t, err)

	strange := adoptFrom(t, p.Hub, 1, stranger.Envelope, report.Envelope, []byte("{}"), envelope[:len(envelope)-9])

	require.Zero(t, p.Hub.Count(t, `SELECT count(*) FROM mirrors`))
	require.Len(t, strange, 4)
	for _, err := range strange {
		require.NotEmpty(t, commands.CodeOf(err))
	}
}

// An answer that is under way while the connection is revoked makes no order known again:
// nobody would end it any more.
func TestNothingIsTakenOverOnceTheConnectionHasEnded(t *testing.T) {
	t.Parallel()
	p, task, envelope := forgotten(t)
	require.NoError(t, p.Hub.Exec(`UPDATE sequences SET recall_from = 1`))
	_, err := p.Hub.DB.SetConnectionState(t.Context(), p.Hub.Conn.ID, store.Revoked, "enough", "test", func(ctx context.Context, tx *store.Tx, c store.Connection) error {
		return store.EndMirrors(ctx, tx, c.ID)
	})
	require.NoError(t, err)

	_, err = p.Hub.DB.Recall(t.Context(), p.Hub.Peer, &commands.Recalled{From: 1, Through: 1, Orders: [][]byte{envelope}, Done: true}, func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Adopt(ctx, p.Hub.Conn, 1, [][]byte{envelope})
		return err
	})

	require.NoError(t, err)
	require.Zero(t, p.Hub.Count(t, `SELECT count(*) FROM mirrors WHERE task = $1`, task))
}

// Who gave the order again may repeat that request, whatever has become of the order.
func TestARequestMayBeRepeatedAfterItsOrderBecameTheOldOne(t *testing.T) {
	t.Parallel()
	p, task, envelope := forgotten(t)
	require.NoError(t, p.Hub.Exec(`UPDATE sequences SET last = 1000, base = 1000`))
	order := func() store.Ordered {
		o := store.SpawnOrder{Conn: p.Hub.Conn.ID, Life: 2 * time.Hour, Actor: "test", IdempotencyKey: "k",
			Spawn: &commands.Spawn{Task: task, Runtime: commands.RuntimeExec, Argv: []string{"true"}}}
		out, err := p.Hub.DB.OrderSpawns(t.Context(), []store.SpawnOrder{o})
		require.NoError(t, err)
		require.Nil(t, out[0].Err, "%v", out[0].Err)
		return out[0]
	}
	require.False(t, order().Existing)

	adopt(t, p.Hub, envelope)

	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.restored'`))
	require.True(t, order().Existing)
}

// What a peer has refused is not recalled: its refusal may be out of date, and an order that
// was given again would end with it.
func TestARefusedOrderIsNotRecalled(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	refused, taken := p.Order(t, nil), p.Order(t, nil)
	orders := p.Spoke.Read(t, p.Hub.Due(t)...)
	orders[0].Refusal = commands.Refuse(commands.Policy, "no")
	take(t, p.Spoke, orders)

	n, err := p.Spoke.DB.Numbering(t.Context(), p.Spoke.Conn.ID, false, &commands.Numbering{Recall: 1})

	require.NoError(t, err)
	require.Len(t, n.Recalled.Orders, 1)
	require.Equal(t, taken, p.Spoke.Read(t, n.Recalled.Orders[0])[0].Task(), "and not %s", refused)
	require.True(t, n.Recalled.Done)
}

// A peer cannot hand back an order from before the time that it was asked about.
func TestAnOldOrderIsNotTakenOver(t *testing.T) {
	t.Parallel()
	p, _, envelope := forgotten(t)

	strange := adoptFrom(t, p.Hub, 2, envelope)

	require.Zero(t, p.Hub.Count(t, `SELECT count(*) FROM mirrors`))
	require.Len(t, strange, 1)
	require.ErrorContains(t, strange[0], "order 1 is older than number 2")
}

// An order that was given again and has ended meanwhile stays as it ended; one that has not
// is the old one from then on, which its peer has accepted.
func TestAnOrderThatHasEndedDoesNotBecomeTheOldOne(t *testing.T) {
	t.Parallel()
	for name, ended := range map[string]bool{"it has ended": true, "it has not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, task, envelope := forgotten(t)
			require.NoError(t, p.Hub.Exec(`UPDATE sequences SET last = 1000, base = 1000`))
			p.Order(t, func(o *store.SpawnOrder) { o.Spawn.Task = task })
			if ended {
				require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET state = 'cancelled', ended_at = now()`))
			}

			adopt(t, p.Hub, envelope)

			m := p.Mirror(t, task)
			require.Equal(t, ended, m.Command != p.Spoke.Read(t, envelope)[0].Header.ID)
			require.Equal(t, ended, m.AcceptedAt == nil)
		})
	}
}

// The same backup may be restored twice: the numbers then go on where they did the first
// time, until the histories are compared, and what is taken over has some of them.
func TestTheNumberOfAnOrderThatWasTakenOverIsNotGivenAgain(t *testing.T) {
	t.Parallel()
	p, task, envelope := forgotten(t)
	require.NoError(t, p.Hub.Exec(`UPDATE sequences SET last = 0`))

	adopt(t, p.Hub, envelope)
	other := p.Order(t, nil)

	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM outbox WHERE task = $1 AND seq = 1`, task))
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM outbox WHERE task = $1 AND seq = 2`, other))
}
