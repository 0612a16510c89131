package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// hints listens as the process that watches does.
func hints(t *testing.T, url string) (next func() string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	_, err = conn.Exec(t.Context(), `LISTEN `+store.ChangedChannel)
	require.NoError(t, err)
	return func() string {
		ctx, done := context.WithTimeout(t.Context(), 20*time.Second)
		defer done()
		n, err := conn.WaitForNotification(ctx)
		require.NoError(t, err)
		return n.Payload
	}
}

func write(t *testing.T, db *store.DB) {
	t.Helper()
	require.NoError(t, db.Audit(t.Context(), store.AuditRow{Actor: "test", Action: "test.write", Object: "x"}))
}

// Who writes says so to the process that watches, before it ends at the latest. Who has
// only read says nothing.
func TestWhatAProcessWritesIsToldBeforeItEnds(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	next := hints(t, s.URL)
	other := storetest.OpenSide(t, s.URL, 1, 2, 2)
	require.NoError(t, other.DB.Tx(t.Context(), "reading", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Exec(ctx, `SELECT count(*) FROM tasks`)
		return err
	}))
	other.DB.Close()
	require.NoError(t, s.Exec(`SELECT pg_notify($1, 'nothing was written')`, store.ChangedChannel))
	require.Equal(t, "nothing was written", next())

	third := storetest.OpenSide(t, s.URL, 1, 2, 2)
	write(t, third.DB)
	require.Empty(t, next(), "the first write is told at once")
	write(t, third.DB)
	third.DB.Close()
	require.NoError(t, s.Exec(`SELECT pg_notify($1, 'both were told')`, store.ChangedChannel))

	require.Empty(t, next(), "the second with the end")
	require.Equal(t, "both were told", next())
}

// watching is a process that watches, and what it was told.
type watching struct {
	own    chan struct{}
	others chan struct{}
}

func watch(t *testing.T, db *store.DB, every time.Duration) watching {
	t.Helper()
	w := watching{make(chan struct{}, 100), make(chan struct{}, 100)}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- db.Watch(ctx, store.Watcher{Every: every, Own: func() { w.own <- struct{}{} }, Others: func() { w.others <- struct{}{} }})
	}()
	t.Cleanup(func() {
		end()
		require.NoError(t, <-ended)
	})
	w.told(t)
	return w
}

// told waits for the next call about others.
func (w watching) told(t *testing.T) {
	t.Helper()
	select {
	case <-w.others:
	case <-time.After(20 * time.Second):
		require.FailNow(t, "who watches was not told")
	}
}

func TestWhoWatchesIsToldOfOthersAndOfItself(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	s.Meet(t, store.Commands)
	w := watch(t, s.DB, time.Hour)
	other := storetest.OpenSide(t, s.URL, 1, 2, 2)

	write(t, other.DB)
	w.told(t)

	write(t, s.DB)
	<-w.own
	o := scene{t, s}.spawn()
	_, err := s.DB.OrderSpawns(t.Context(), []store.SpawnOrder{o})
	require.NoError(t, err)
	<-w.own
	require.NoError(t, s.DB.Tx(t.Context(), "reading", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Exec(ctx, `SELECT count(*) FROM tasks`)
		return err
	}))
	require.Empty(t, w.own, "it has written nothing")
}

// A line that ends is made again, and what came meanwhile is looked for.
func TestWhoWatchesListensAgain(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	w := watch(t, s.DB, time.Hour)
	other := storetest.OpenSide(t, s.URL, 1, 2, 2)

	login, err := pgx.Connect(t.Context(), s.URL) // the engine's role does not see what its sessions run
	require.NoError(t, err)
	var cut int
	require.NoError(t, login.QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN %'`).Scan(&cut))
	require.NoError(t, login.Close(t.Context()))

	require.Equal(t, 1, cut)
	w.told(t) // of its end
	w.told(t) // with the new one
	write(t, other.DB)
	w.told(t)
}

// A hint may be lost with the process that was about to send it.
func TestWithoutAHintWhoWatchesLooksNowAndThen(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)

	w := watch(t, s.DB, 1100*time.Millisecond)

	w.told(t)
	w.told(t)
}
