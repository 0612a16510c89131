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

// Old messages leave their signed bytes and make room, and are known all the same when they
// come again, or are sealed anew.
func TestOldMessagesLeaveTheirSignedBytes(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	for range 4 {
		p.Order(t, nil)
	}
	sent := p.Hub.Due(t)
	require.Equal(t, make([]commands.Code, 3), taken(t, p.Spoke, sent[:3]...))
	require.NoError(t, p.Spoke.Exec(`UPDATE inbox SET received_at = now() - interval '3 hours' WHERE seq < 3`))
	empty := func() int { return p.Spoke.Count(t, `SELECT count(*) FROM inbox WHERE envelope = ''`) }
	prune(t, p.Spoke)
	require.Zero(t, empty(), "they stay as long as they are known, unless somebody says otherwise")
	p.Spoke.DB.BoundInbox(store.InboxBound{Bytes: int64(len(sent[0]) + len(sent[1]) + len(sent[2]))})
	require.Equal(t, []commands.Code{commands.Full}, taken(t, p.Spoke, sent[3]))

	require.NoError(t, p.Spoke.DB.SetRetention(t.Context(), "envelopes", 2*time.Hour, "ann"))
	require.EqualValues(t, 2, prune(t, p.Spoke)["envelopes"])

	require.Equal(t, 2, empty())
	require.Equal(t, 1, p.Spoke.Count(t, `SELECT count(*) FROM sequences WHERE emptied = 2`))
	requireCounted(t, p.Spoke)
	p.Spoke.DB.BoundInbox(store.InboxBound{})
	anew, err := p.Hub.Signing.Renumber(sent[1], 77)
	require.NoError(t, err)
	require.Equal(t, []commands.Code{signing.ReplaySame, "", signing.ReplaySame}, taken(t, p.Spoke, sent[0], sent[3], anew.Envelope))
	requireCounted(t, p.Spoke)
	require.Equal(t, commands.Validation, commands.CodeOf(p.Spoke.DB.SetRetention(t.Context(), "envelopes", time.Minute, "ann")), "an answer is read where it is kept")
}

// A message that somebody holds is not passed by.
func TestAMessageThatIsHeldIsEmptiedLater(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	for range 3 {
		p.Order(t, nil)
	}
	taken(t, p.Spoke, p.Hub.Due(t)...)
	require.NoError(t, p.Spoke.Exec(`UPDATE inbox SET received_at = now() - interval '3 hours'`))
	require.NoError(t, p.Spoke.DB.SetRetention(t.Context(), "envelopes", 2*time.Hour, "ann"))
	err := p.Spoke.DB.Tx(t.Context(), "holding a message", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Exec(ctx, `SELECT FROM inbox WHERE seq = 2 FOR UPDATE`)
		require.EqualValues(t, 1, prune(t, p.Spoke)["envelopes"])
		return err
	})
	require.NoError(t, err)
	requireCounted(t, p.Spoke)

	require.EqualValues(t, 2, prune(t, p.Spoke)["envelopes"])

	require.Zero(t, p.Spoke.Count(t, `SELECT count(*) FROM inbox WHERE envelope <> ''`))
	requireCounted(t, p.Spoke)
}

// It goes through all connections in batches, and neither passes by what is not old yet nor reads
// again what it has passed.
func TestSignedBytesGoByBatches(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	q := p.Another(t)
	fill := `INSERT INTO inbox (conn, id, seq, digest, kind, exp, received_at, envelope)
		SELECT $1, gen_random_uuid(), n, '', 'agent.accepted', now() + interval '1 day', now() - (10000 - n) * interval '1 day', 'signed' FROM generate_series(1, 9999) AS n`
	for _, side := range []*storetest.Side{p.Hub, q.Hub} {
		require.NoError(t, side.Exec(fill, side.Conn.ID))
		require.NoError(t, side.Exec(`UPDATE sequences SET kept_rows = 9999, kept_bytes = 9999 * 6 WHERE conn = $1`, side.Conn.ID))
	}

	require.EqualValues(t, 2*9968, prune(t, p.Hub)["envelopes"])

	require.Equal(t, 2*31, p.Hub.Count(t, `SELECT count(*) FROM inbox WHERE envelope <> ''`))
	requireCounted(t, p.Hub)
	requireCounted(t, q.Hub)
	require.Zero(t, prune(t, p.Hub)["envelopes"])
}
