package store_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// What waits is what the peer has not confirmed, and as old as the oldest of it, whatever came
// behind that was confirmed.
func TestAnOutboxIsAsOldAsItsOldestMessage(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	of := func() store.Outbox {
		list, err := p.Hub.DB.Outboxes(t.Context())
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, p.Hub.Conn.ID, list[0].Conn)
		return list[0]
	}
	require.Equal(t, store.Outbox{Conn: p.Hub.Conn.ID}, of(), "nothing was sent")
	question(t, p.Hub, 6)
	require.NoError(t, p.Hub.Exec(`UPDATE outbox SET created_at = now() - (10 - seq) * interval '1 hour'`))
	require.Equal(t, int64(6), of().Unconfirmed)
	require.InDelta(t, 9, of().Age.Hours(), 0.1)

	require.NoError(t, p.Hub.DB.Confirm(t.Context(), p.Hub.Peer, commands.Numbers{Through: 5, Gaps: []commands.Range{{From: 2, To: 3}}}))

	require.Equal(t, int64(3), of().Unconfirmed)
	require.InDelta(t, 8, of().Age.Hours(), 0.1)

	require.NoError(t, p.Hub.DB.Confirm(t.Context(), p.Hub.Peer, commands.Numbers{Through: 6}))

	require.Equal(t, store.Outbox{Conn: p.Hub.Conn.ID}, of(), "all is confirmed")
}

// A schema of another version is named, and so is what grows.
func TestTheSchemaIsThisProgramsOrIsNamed(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	require.NoError(t, p.Hub.DB.Migrated(t.Context()))
	s, err := p.Hub.DB.Sizes(t.Context())
	require.NoError(t, err)
	require.Positive(t, s.Tables)

	require.NoError(t, p.Hub.Exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, true)`))

	require.ErrorContains(t, p.Hub.DB.Migrated(t.Context()), "the database has schema 9999")
}

// A server that hangs is an outage like any other: it counts once, whoever waits for it and however
// long. That a statement takes long is none.
func TestAnOutageCountsOnce(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T) (*storetest.Proxy, *store.DB) {
		p := storetest.NewProxy(t, storetest.URL(t))
		return p, storetest.OpenSide(t, p.URL, 1, 2, 4).DB
	}
	now := func(db *store.DB, most time.Duration) error {
		ctx, done := context.WithTimeout(t.Context(), most)
		defer done()
		_, err := db.Now(ctx)
		return err
	}
	t.Run("a server that hangs", func(t *testing.T) {
		t.Parallel()
		p, db := open(t)
		for outage := range int64(2) {
			end := sync.OnceFunc(p.Hang())
			t.Cleanup(end)
			first := make(chan error, 1)
			go func() { first <- now(db, time.Minute) }()
			for began := time.Now(); db.Outages() == outage; {
				require.Error(t, now(db, 100*time.Millisecond))
				require.Less(t, time.Since(began), 30*time.Second)
			}
			require.Error(t, now(db, 100*time.Millisecond))
			end()
			require.NoError(t, <-first)
			require.Equal(t, outage+1, db.Outages())
		}
	})
	t.Run("nobody waits for ever", func(t *testing.T) {
		t.Parallel()
		p, db := open(t)
		end := sync.OnceFunc(p.Hang())
		t.Cleanup(end)
		require.ErrorContains(t, now(db, 5*time.Minute), "the database server hangs")
		require.Error(t, db.Audit(t.Context(), store.AuditRow{Actor: "test", Action: "test"}))
		end()
		require.NoError(t, now(db, time.Minute))
		require.Equal(t, int64(1), db.Outages())
	})
	t.Run("one that is away", func(t *testing.T) {
		t.Parallel()
		p, db := open(t)
		p.Away(true)
		p.Cut(p.Commits() + 1)
		_ = db.Audit(t.Context(), store.AuditRow{Actor: "test", Action: "test"}) // its connection ends
		require.Error(t, now(db, time.Second))
		p.Away(false)
		require.NoError(t, now(db, time.Minute))
		require.Equal(t, int64(1), db.Outages())
	})
	t.Run("a statement that takes long", func(t *testing.T) {
		t.Parallel()
		_, db := open(t)
		require.NoError(t, db.Read(t.Context(), "sleeping", func(ctx context.Context, conn *pgxpool.Conn) error {
			_, err := conn.Exec(ctx, `SELECT pg_sleep(6)`)
			return err
		}))
		require.Zero(t, db.Outages())
	})
}
