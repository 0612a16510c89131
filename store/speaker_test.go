package store_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// What a revoked key says has no effect, whatever is remembered of keys: each statement asks
// the key's own row.
func TestWhatAnEndedKeySaysHasNoEffect(t *testing.T) {
	t.Parallel()
	ends := map[string]struct {
		sql  string
		want signing.Code
	}{
		"revoked": {`UPDATE keys SET revoked_at = clock_timestamp(), not_after = clock_timestamp() WHERE conn = $1 AND use = 'signing'`, signing.KeyRevoked},
		"ended":   {`UPDATE keys SET not_after = clock_timestamp() WHERE conn = $1 AND use = 'signing'`, signing.KeyWindow},
		"unknown": {`DELETE FROM keys WHERE conn = $1 AND use = 'signing'`, signing.KeyUnknown},
	}
	says := map[string]func(context.Context, *storetest.Side) error{
		"a confirmation": func(ctx context.Context, s *storetest.Side) error {
			return s.DB.Confirm(ctx, s.Peer, commands.Numbers{Through: 2})
		},
		"numbers to compare": func(ctx context.Context, s *storetest.Side) error {
			_, err := s.DB.Compare(ctx, s.Peer, commands.Numbering{Stored: commands.Numbers{Through: 2}, Digest: &commands.History{}, Base: 9}, 0, 20)
			return err
		},
		"what was said": func(ctx context.Context, s *storetest.Side) error {
			_, err := s.DB.Recall(ctx, s.Peer, &commands.Recalled{From: 7, Through: 9, Done: true}, func(context.Context, *store.Tx) error { return nil })
			return err
		},
		"void numbers": func(ctx context.Context, s *storetest.Side) error {
			return s.DB.CloseVoid(ctx, s.Peer, []commands.Range{{From: 3, To: 4}})
		},
		"a state": func(ctx context.Context, s *storetest.Side) error {
			_, err := s.DB.NotePeerState(ctx, s.Conn, s.Peer.Key, store.PeerState{State: store.Suspended, By: "uid:0", Reason: "holiday"})
			return err
		},
		"a freeze": func(ctx context.Context, s *storetest.Side) error {
			_, err := s.DB.NoteFreeze(ctx, s.Conn, s.Peer.Key, commands.Freeze{Number: 7, Frozen: true}, []byte("m"))
			return err
		},
		"the last message": func(ctx context.Context, s *storetest.Side) error {
			_, err := s.DB.SetConnectionState(ctx, s.Conn.ID, store.Revoked, "over", "peer", func(ctx context.Context, tx *store.Tx, _ store.Connection) error { return tx.Speaks(ctx, s.Peer) })
			return err
		},
	}
	const state = `SELECT (SELECT count(*) FROM open_outbox)::text || c.state || s.stored::text || s.peer_base || s.peer_state || s.recall_from || (SELECT count(*) FROM audit)
		FROM sequences s JOIN connections c ON c.id = s.conn`
	for how, end := range ends {
		for what, say := range says {
			t.Run(what+" of a key that is "+how, func(t *testing.T) {
				t.Parallel()
				hub := storetest.NewPair(t).Hub
				question(t, hub, 2)
				require.NoError(t, hub.Exec(`UPDATE sequences SET recall_from = 7, stored = '{[1,3),[5,9]}', peer_base = 8`))
				require.NoError(t, hub.Exec(end.sql, hub.Conn.ID))
				db := connect(t, hub.URL)
				var before, after string
				require.NoError(t, db.QueryRow(t.Context(), state).Scan(&before))

				err := say(t.Context(), hub)

				require.Equal(t, end.want, commands.CodeOf(err), "%v", err)
				_, ended := store.SpeakerEnded(err)
				require.True(t, ended)
				require.NoError(t, db.QueryRow(t.Context(), state).Scan(&after))
				require.Equal(t, before, after)
			})
		}
	}
}
