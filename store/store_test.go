package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestTheCursorSendsOnceAndAgainWhatIsNotConfirmed(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	for range 2 {
		p.Order(t, nil)
	}

	first, err := p.Hub.Out.Next(t.Context())
	require.NoError(t, err)
	p.Order(t, nil)
	second, err := p.Hub.Out.Next(t.Context())
	require.NoError(t, err)
	p.Hub.Out.Back(second)
	third, err := p.Hub.Out.Next(t.Context())
	require.NoError(t, err)
	soon, err := p.Hub.Out.Again(t.Context())
	require.NoError(t, err)
	fresh, err := p.Hub.DB.NewCursor(p.Hub.Conn.ID).Next(t.Context())
	require.NoError(t, err)

	require.Equal(t, []int64{1, 2}, []int64{first[0].Seq, first[1].Seq})
	require.Equal(t, second, third, "what could not be sent comes again")
	require.Empty(t, soon, "nothing is overdue yet")
	require.Len(t, fresh, 3, "a restart sends everything that is open")
	require.NoError(t, p.Hub.Exec(`UPDATE outbox SET created_at = created_at - interval '1 hour'`))
	store.OverdueForTest(p.Hub.Out)
	late, err := p.Hub.Out.Again(t.Context())
	require.NoError(t, err)
	require.Len(t, late, 3)
	require.NotEqual(t, first[0].ID, late[0].ID, "the message server must not take the copy for a repetition")
	require.Equal(t, first[0].Envelope, late[0].Envelope)
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	first := p.Order(t, func(o *store.SpawnOrder) { o.IdempotencyKey = "k" })
	again := p.Order(t, func(o *store.SpawnOrder) { o.IdempotencyKey = "k" })
	require.Equal(t, first, again)

	other := store.SpawnOrder{Conn: p.Hub.Conn.ID, Life: time.Hour, Actor: "test", IdempotencyKey: "k",
		Spawn: &commands.Spawn{Task: storetest.NewID(), Runtime: commands.RuntimeExec, Argv: []string{"false"}}}
	out, err := p.Hub.DB.OrderSpawns(t.Context(), []store.SpawnOrder{other})

	require.NoError(t, err)
	require.Equal(t, commands.Idempotency, out[0].Err.Code)
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM mirrors`))
	require.Equal(t, p.Hub.Count(t, `SELECT count(*) FROM outbox`), p.Hub.Count(t, `SELECT last FROM sequences`), "no number is missing")
}

func TestRevokedIsFinal(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	_, err := p.Hub.DB.SetConnectionState(t.Context(), p.Hub.Conn.ID, store.Revoked, "gone", "test", nil)
	require.NoError(t, err)

	_, err = p.Hub.DB.SetConnectionState(t.Context(), p.Hub.Conn.ID, store.Active, "back", "test", nil)

	require.Equal(t, commands.Conflict, commands.CodeOf(err))
	require.Error(t, p.Hub.Exec(`UPDATE connections SET state = 'active'`))
	out, err := p.Hub.DB.OrderSpawns(t.Context(), []store.SpawnOrder{{Conn: p.Hub.Conn.ID, Life: time.Hour, Spawn: &commands.Spawn{Task: storetest.NewID()}}})
	require.NoError(t, err)
	require.Equal(t, signing.ConnState, out[0].Err.Code)
}

func TestInvitesAreUsedUpOnce(t *testing.T) {
	t.Parallel()
	lab := storetest.NewSide(t, 1, 2)
	id := storetest.NewID()
	_, err := lab.DB.AddInvite(t.Context(), store.Invite{ID: id, Name: "attic", ProofKey: []byte("k"), TTL: time.Minute, Uses: 1, Actor: "test"})
	require.NoError(t, err)
	errs := make(chan error, 10)

	for i := range 10 {
		go func() {
			peer, key := storetest.Signer(t, byte(100+i)), storetest.Signer(t, byte(150+i))
			_, err := lab.DB.AddConnection(t.Context(), store.NewConnection{Invite: id, Grant: storetest.Terms, Actor: "test",
				Connection: store.Connection{ID: storetest.NewID(), Peer: signing.InstanceIDOf(peer.Public()), Name: "attic", Authority: store.Commands,
					State: store.Pending, LinkKey: fmt.Sprint("U", i)},
				Keys: store.PeerKeys{Identity: peer.Public(), Signing: key.Public(), Sealing: bytes.Repeat([]byte{byte(2 + i)}, 32)}})
			errs <- err
		}()
	}

	won := 0
	for range 10 {
		if err := <-errs; err == nil {
			won++
		} else {
			require.Contains(t, []commands.Code{commands.NotFound, commands.Conflict}, commands.CodeOf(err), "%v", err)
		}
	}
	require.Equal(t, 1, won)
}

func TestTheDatabaseBelongsToOneInstance(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	_, err := store.Open(t.Context(), store.Config{URL: s.URL, Self: signing.InstanceIDOf(storetest.Signer(t, 9).Public()), Signer: s.Signing})
	require.ErrorContains(t, err, "belongs to instance "+string(s.Self()))
}

func TestGroupAnswersEveryCaller(t *testing.T) {
	t.Parallel()
	var rounds int
	g := store.NewGroup(func(_ context.Context, in []int) ([]int, error) {
		rounds++
		out := make([]int, len(in))
		for i, x := range in {
			out[i] = 2 * x
		}
		time.Sleep(time.Millisecond) // a commit takes time: that is what makes a group
		return out, nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- g.Run(ctx) }()
	answers := make(chan bool, 500)
	for i := range 500 {
		go func() {
			got, err := g.Submit(ctx, i)
			answers <- err == nil && got == 2*i
		}()
	}
	for range 500 {
		require.True(t, <-answers)
	}
	stop()
	require.NoError(t, <-ended)
	require.Less(t, rounds, 250)
}

// What was queued and has failed, by the word of who reads it too, is what all behind it says.
func TestWhatIsBehindAQueuedFailureFails(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	wrong := errors.New("not as it was assumed")

	err := s.DB.Tx(t.Context(), "trying it", func(ctx context.Context, tx *store.Tx) error {
		tx.Queue(`SELECT 1`).QueryRow(func(pgx.Row) error { return wrong })
		var b pgx.Batch
		for range 3 {
			b.Queue(`SELECT 2`)
		}
		var n int
		results := tx.SendBatch(ctx, &b)
		require.ErrorIs(t, results.QueryRow().Scan(&n), wrong)
		_, err := results.Exec()
		require.ErrorIs(t, err, wrong)
		rows, err := results.Query()
		require.ErrorIs(t, err, wrong)
		require.False(t, rows.Next())
		require.ErrorIs(t, rows.Err(), wrong)
		require.Zero(t, n)
		return results.Close()
	})

	require.ErrorIs(t, err, wrong)
}
