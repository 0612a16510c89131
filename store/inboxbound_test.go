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

// taken takes in messages of the hub that have no effect, and says what became of them.
func taken(t *testing.T, s *storetest.Side, envelopes ...[]byte) (codes []commands.Code) {
	t.Helper()
	batch := s.Read(t, envelopes...)
	_, err := s.DB.TakeIn(t.Context(), s.Conn.ID, 20, batch, func(context.Context, *store.Tx, store.Standing, []*store.Incoming) error { return nil })
	require.NoError(t, err)
	for _, m := range batch {
		codes = append(codes, m.Code)
	}
	return codes
}

// What is counted of the inbox is what is there.
func requireCounted(t *testing.T, s *storetest.Side) {
	t.Helper()
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM sequences s WHERE conn = $1 AND kept_rows = (SELECT count(*) FROM inbox i WHERE i.conn = s.conn)
		AND kept_bytes = (SELECT coalesce(sum(length(envelope)), 0) FROM inbox i WHERE i.conn = s.conn)`, s.Conn.ID))
}

// What the inbox has no room for is not stored: nothing says that it was, and it is taken when
// it comes again and older ones are gone.
func TestAFullInboxLeavesMessagesToTheirSender(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	for range 5 {
		p.Order(t, nil)
	}
	sent := p.Hub.Due(t)
	p.Spoke.DB.BoundInbox(store.InboxBound{Rows: 3})

	require.Equal(t, []commands.Code{"", "", "", commands.Full, commands.Full}, taken(t, p.Spoke, sent...))

	stored, err := p.Spoke.DB.StoredOf(t.Context(), p.Spoke.Conn.ID)
	require.NoError(t, err)
	require.Equal(t, commands.Numbers{Through: 3}, stored)
	requireCounted(t, p.Spoke)
	require.Zero(t, p.Spoke.Count(t, `SELECT count(*) FROM audit WHERE code = 'FULL'`), "a flood of them fills nothing else")
	require.Equal(t, []commands.Code{signing.ReplaySame, commands.Full}, taken(t, p.Spoke, sent[0], sent[4]), "what is stored takes no room")
	require.NoError(t, p.Spoke.Exec(`UPDATE inbox SET exp = now() - interval '2 days' WHERE seq < 3`))
	removed, err := p.Spoke.DB.Prune(t.Context(), time.Hour, time.Minute)
	require.NoError(t, err)
	require.EqualValues(t, 2, removed["inbox"])
	requireCounted(t, p.Spoke)

	require.Equal(t, []commands.Code{"", ""}, taken(t, p.Spoke, sent[3], sent[4]))
	requireCounted(t, p.Spoke)
}

// A kill has some room of its own, and so have keys.
func TestAKillFitsIntoAFullInbox(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	task := p.Order(t, nil)
	sent := p.Hub.Due(t)
	require.Equal(t, []commands.Code{""}, taken(t, p.Spoke, sent[0]))
	_, err := p.Hub.DB.OrderKill(t.Context(), commands.Kill{Task: task, Reason: "enough"}, time.Hour, "test")
	require.NoError(t, err)
	kill := p.Hub.Due(t)[0]
	p.Spoke.DB.BoundInbox(store.InboxBound{Rows: 100, Bytes: int64(len(sent[0])+len(kill))*16/17 + 2})

	p.Order(t, nil)

	require.Equal(t, []commands.Code{commands.Full, ""}, taken(t, p.Spoke, p.Hub.Due(t)[0], kill))
}

// All peers together are bounded, too.
func TestOnePeerFillsWhatIsLeftOfAll(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	p.Order(t, nil)
	p.Order(t, nil)
	sent := p.Hub.Due(t)
	p.Spoke.DB.BoundInbox(store.InboxBound{All: 1})
	require.Equal(t, []commands.Code{""}, taken(t, p.Spoke, sent[0]))

	require.NoError(t, p.Spoke.DB.MeasureInbox(t.Context()))
	require.Equal(t, []commands.Code{commands.Full}, taken(t, p.Spoke, sent[1]))

	p.Spoke.DB.BoundInbox(store.InboxBound{})
	require.NoError(t, p.Spoke.DB.MeasureInbox(t.Context()))
	require.Equal(t, []commands.Code{""}, taken(t, p.Spoke, sent[1]))
}

// What is refused leaves its digest, and no bytes.
func TestWhatIsRefusedLeavesItsDigest(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	p.Order(t, nil)
	p.Order(t, nil)
	batch := p.Spoke.Read(t, p.Hub.Due(t)...)
	batch[0].Refusal = commands.Refuse(commands.Policy, "no")

	_, err := p.Spoke.DB.TakeIn(t.Context(), p.Spoke.Conn.ID, 20, batch, func(_ context.Context, tx *store.Tx, _ store.Standing, fresh []*store.Incoming) error {
		fresh[0].Refuse(tx, commands.Refuse(commands.Grant, "no"))
		return nil
	})

	require.NoError(t, err)
	require.Equal(t, 2, p.Spoke.Count(t, `SELECT count(*) FROM inbox WHERE envelope = '' AND length(digest) = 32 AND code <> ''`))
	requireCounted(t, p.Spoke)
}

// reported returns a report of the pair's spoke about an order of its hub.
func reported(t *testing.T, p *storetest.Pair) []byte {
	t.Helper()
	task := p.Order(t, nil)
	order := p.Spoke.Read(t, p.Hub.Due(t)...)[0]
	require.NoError(t, p.Spoke.DB.Tx(t.Context(), "answering", func(_ context.Context, tx *store.Tx) error {
		tx.Send(store.Draft{Conn: p.Spoke.Conn.ID, Body: &commands.Accepted{Task: task, State: commands.Queued}, Re: &signing.Ref{ID: order.Header.ID, SHA256: order.Digest.String()}})
		return nil
	}))
	return p.Spoke.Due(t)[0]
}

// What a connection has left that has ended takes no room of the others.
func TestWhatEndedConnectionsLeftHoldsUpNobody(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	q := p.Another(t)
	first, second := reported(t, p), reported(t, q)
	p.Hub.DB.BoundInbox(store.InboxBound{All: 1})
	require.Equal(t, []commands.Code{""}, taken(t, p.Hub, first))
	require.NoError(t, p.Hub.DB.MeasureInbox(t.Context()))
	require.Equal(t, []commands.Code{commands.Full}, taken(t, q.Hub, second))

	_, err := p.Hub.DB.SetConnectionState(t.Context(), p.Hub.Conn.ID, store.Revoked, "gone", "test", nil)
	require.NoError(t, err)

	require.NoError(t, p.Hub.DB.MeasureInbox(t.Context()))
	require.Equal(t, []commands.Code{""}, taken(t, q.Hub, second))
}

// A wider bound of bytes is wider for small messages, too.
func TestAWiderBoundHelpsWhereMessagesAreSmall(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	p.Order(t, nil)
	sent := p.Hub.Due(t)
	require.NoError(t, p.Spoke.Exec(`UPDATE sequences SET kept_rows = 20000001`))
	require.Equal(t, []commands.Code{commands.Full}, taken(t, p.Spoke, sent...))

	p.Spoke.DB.BoundInbox(store.InboxBound{Bytes: 32 << 30})

	require.Equal(t, []commands.Code{""}, taken(t, p.Spoke, sent...))
}

// That an inbox is full is said once, and its end once, whatever process there is meanwhile.
func TestAFullInboxIsNotedUntilThereIsRoom(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	conn := p.Hub.Conn.ID
	audited := func(action string) int {
		return p.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = $1 AND object = 'attic' AND conn = $2`, action, conn)
	}
	since, err := p.Hub.DB.NoteFull(t.Context(), conn)
	require.NoError(t, err)
	again, err := p.Hub.DB.NoteFull(t.Context(), conn)
	require.NoError(t, err)
	require.Equal(t, since, again)
	require.Equal(t, 1, audited("connection.full"))

	list, err := p.Hub.DB.FullInboxes(t.Context())
	require.NoError(t, err)
	require.Equal(t, []store.FullInbox{{Conn: conn, Since: since, Room: true}}, list)
	require.NoError(t, p.Hub.Exec(`UPDATE sequences SET kept_bytes = 100`))
	p.Hub.DB.BoundInbox(store.InboxBound{Bytes: 101})
	list, err = p.Hub.DB.FullInboxes(t.Context())
	require.NoError(t, err)
	require.False(t, list[0].Room)

	require.NoError(t, p.Hub.DB.NoteRoom(t.Context(), conn))
	require.NoError(t, p.Hub.DB.NoteRoom(t.Context(), conn))
	require.Equal(t, 1, audited("connection.room"))
	list, err = p.Hub.DB.FullInboxes(t.Context())
	require.NoError(t, err)
	require.Empty(t, list)
}
