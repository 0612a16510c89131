package store_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// notifications listens as the process that watches does.
func notifications(t *testing.T, url string) (next func() string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Admin(url))
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
	next := notifications(t, s.URL)
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

// watching is a process that watches, and what it is called about.
type watching struct {
	own    chan struct{}
	others chan store.Wrote
}

func watch(t *testing.T, db *store.DB, every time.Duration) watching {
	t.Helper()
	w := watching{make(chan struct{}, 100), make(chan store.Wrote, 100)}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- db.Watch(ctx, store.Watcher{Every: every, Changed: func(c store.Wrote) {
			if c == store.ByThis {
				w.own <- struct{}{}
			} else {
				w.others <- c
			}
		}})
	}()
	t.Cleanup(func() {
		end()
		require.NoError(t, <-ended)
	})
	w.awaits(t, store.ByAnother) // what came before was not heard
	return w
}

// called waits for the next call about others.
func (w watching) called(t *testing.T) store.Wrote {
	t.Helper()
	select {
	case c := <-w.others:
		return c
	case <-time.After(20 * time.Second):
		require.FailNow(t, "the watcher was not called")
		return 0
	}
}

func (w watching) awaits(t *testing.T, want store.Wrote) {
	t.Helper()
	require.Equal(t, want, w.called(t))
}

func TestWhoWatchesIsToldOfOthersAndOfItself(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	s.Meet(t, store.Commands)
	w := watch(t, s.DB, time.Hour)
	other := storetest.OpenSide(t, s.URL, 1, 2, 2)

	write(t, other.DB)
	w.awaits(t, store.ByAnother)

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

	login, err := pgx.Connect(t.Context(), pgtest.Admin(s.URL)) // the engine's role does not see what its sessions run
	require.NoError(t, err)
	var cut int
	require.NoError(t, login.QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN %'`).Scan(&cut))
	require.NoError(t, login.Close(t.Context()))

	require.Equal(t, 1, cut)
	w.awaits(t, store.ByAnother) // of its end
	w.awaits(t, store.ByAnother) // with the new one
	write(t, other.DB)
	w.awaits(t, store.ByAnother)
}

// A notification may be lost with the process that was about to send it.
func TestWithoutANotificationWhoWatchesLooksNowAndThen(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)

	w := watch(t, s.DB, 1100*time.Millisecond)

	w.awaits(t, store.PerhapsLost)
	w.awaits(t, store.PerhapsLost)
}

// A commit whose answer is lost, and that has happened, is told as any other.
func TestACommitWithoutAnAnswerIsTold(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	s.Meet(t, store.Commands)
	next := notifications(t, s.URL)
	p := storetest.NewProxy(t, s.URL)
	watching, guest := storetest.OpenSide(t, p.URL, 1, 2, 4), storetest.OpenSide(t, p.URL, 1, 2, 4)
	watching.Conn, guest.Conn = s.Conn, s.Conn
	p.Lose(p.Commits() + 1)
	question(t, guest, 1)
	require.Empty(t, next(), "a process that does not watch says so")

	w := watch(t, watching.DB, time.Hour)
	p.Lose(p.Commits() + 1)
	question(t, watching, 1)

	select {
	case <-w.own:
	case <-time.After(20 * time.Second):
		require.FailNow(t, "the process that watches was not told of its own commit")
	}
	require.Equal(t, 2, s.Count(t, `SELECT count(*) FROM outbox`))
}

// It is told before anybody knows what became of the commit: that may take as long as an outage.
func TestACommitThatIsInDoubtIsTold(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	s.Meet(t, store.Commands)
	p := storetest.NewProxy(t, s.URL)
	watching := storetest.OpenSide(t, p.URL, 1, 2, 4)
	w := watch(t, watching.DB, time.Hour)
	p.Lose(p.Commits() + 1)
	p.Away(true)
	t.Cleanup(func() { p.Away(false) })
	ctx, giveUp := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	go func() {
		asked <- watching.DB.Tx(ctx, "asking", func(_ context.Context, tx *store.Tx) error {
			tx.Send(store.Draft{Conn: s.Conn.ID, Body: &commands.Status{Task: storetest.NewID()}, Life: time.Hour})
			return nil
		})
	}()

	select {
	case <-w.own:
	case <-time.After(20 * time.Second):
		require.FailNow(t, "the process that watches was not told of a commit that may have happened")
	}
	giveUp()
	require.ErrorContains(t, <-asked, "it may have been done")
}

// Who watches looks now and then also when the server does not answer its session.
func TestASilentLineKeepsNobodyFromLooking(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	w := watch(t, s.DB, 1100*time.Millisecond)
	var pid int
	conn, err := pgx.Connect(t.Context(), pgtest.Admin(s.URL))
	require.NoError(t, err)
	defer conn.Close(context.Background())
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND (query LIKE 'LISTEN %' OR query LIKE '-- ping%')`).Scan(&pid))
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })

	for range 4 { // those of before it was stopped, and others
		w.called(t)
	}
}

// What waits to be told is not told inside of a transaction that is rolled back.
func TestATransactionThatFailsLosesNoNotification(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	conn, err := pgx.Connect(t.Context(), pgtest.Admin(s.URL))
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), `LISTEN `+store.ChangedChannel)
	require.NoError(t, err)
	notified := func() error {
		ctx, done := context.WithTimeout(t.Context(), 6*time.Second)
		defer done()
		_, err := conn.WaitForNotification(ctx)
		return err
	}
	other := storetest.OpenSide(t, s.URL, 1, 2, 1) // one connection
	write(t, other.DB)
	require.NoError(t, notified())
	write(t, other.DB) // to be told a second after the first

	err = other.DB.Tx(t.Context(), "failing", func(ctx context.Context, tx *store.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT 1`); err != nil {
			return err
		}
		time.Sleep(1200 * time.Millisecond)
		return errors.New("it is refused")
	})
	require.Error(t, err)

	require.NoError(t, notified(), "the second write is told, too")
}

// What could not be said when its time came, because no session was idle, is said later.
func TestANotificationIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	next := notifications(t, s.URL)
	other := storetest.OpenSide(t, s.URL, 1, 2, 1) // one session
	write(t, other.DB)
	require.Empty(t, next())
	write(t, other.DB) // to be said a second after the first

	require.NoError(t, other.DB.Read(t.Context(), "holding the session", func(context.Context, *pgxpool.Conn) error {
		time.Sleep(1200 * time.Millisecond)
		return nil
	}))

	require.Empty(t, next())
}

// Who writes often does not notify with each write: what came within a second of the last
// notification is told by the next one.
func TestManyWritesAreToldOnceASecond(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	next := notifications(t, s.URL)
	other := storetest.OpenSide(t, s.URL, 1, 2, 2)

	began := time.Now()
	for range 100 {
		write(t, other.DB)
	}
	other.DB.Close() // which tells the last of them at once
	most := 2 + int(time.Since(began)/time.Second)

	require.NoError(t, s.Exec(`SELECT pg_notify($1, 'that was all')`, store.ChangedChannel))
	told := 0
	for next() == "" {
		told++
	}
	require.LessOrEqual(t, told, most)
}

// What an instance writes by itself, now and then, wakes nobody.
func TestNobodyIsToldOfWhatNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	s.Meet(t, store.Commands)
	w := watch(t, s.DB, time.Hour)
	next := notifications(t, s.URL)
	other := storetest.OpenSide(t, s.URL, 1, 2, 2)

	_, err := s.DB.Serve(t.Context(), "the first")
	require.NoError(t, err)
	require.NoError(t, s.DB.Confirm(t.Context(), s.Peer, commands.Numbers{}))
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM serving`), "it has written something")
	require.Empty(t, w.own)

	require.NoError(t, s.Exec(`DELETE FROM serving`))
	_, err = other.DB.Serve(t.Context(), "the second")
	require.NoError(t, err)
	other.DB.Close() // what is pending is said then at the latest
	require.NoError(t, s.Exec(`SELECT pg_notify($1, 'nothing was said')`, store.ChangedChannel))
	require.Equal(t, "nothing was said", next())
}

// A notification that comes with the answer to another question, as the watcher asks
// whether its line is alive, is heard.
func TestANotificationDuringAPingIsHeard(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	conn, err := store.ListenerForTest(t.Context(), s.DB)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	require.NoError(t, s.Exec(`NOTIFY `+store.ChangedChannel))
	time.Sleep(50 * time.Millisecond) // if it is later still, it is heard all the same
	require.NoError(t, conn.Ping(t.Context()))

	heard, err := store.NotificationForTest(t.Context(), conn, 10*time.Second)

	require.NoError(t, err)
	require.True(t, heard)
}

// A notification that was received is heard, whatever the time is.
func TestAReceivedNotificationIsHeard(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	conn, err := store.ListenerForTest(t.Context(), s.DB)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	require.NoError(t, s.Exec(`NOTIFY `+store.ChangedChannel))
	time.Sleep(50 * time.Millisecond)
	require.NoError(t, conn.Ping(t.Context())) // it comes with the answer

	heard, err := store.NotificationForTest(t.Context(), conn, time.Nanosecond)
	if err == nil && !heard {
		heard, err = store.NotificationForTest(t.Context(), conn, 10*time.Second)
	}

	require.NoError(t, err)
	require.True(t, heard)
}

// What may be committed is told at once, and once more when it is known to be: who looked
// in between may have seen nothing.
func TestACommitIsToldWhenItIsKnown(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	p := storetest.NewProxy(t, s.URL)
	watching := storetest.OpenSide(t, p.URL, 1, 2, 4)
	w := watch(t, watching.DB, time.Hour)
	told := func(what string) {
		select {
		case <-w.own:
		case <-time.After(20 * time.Second):
			require.FailNow(t, what)
		}
	}
	p.Lose(p.Commits() + 1)
	p.Away(true)
	wrote := make(chan error, 1)

	go func() {
		wrote <- watching.DB.Audit(context.Background(), store.AuditRow{Actor: "test", Action: "test.write", Object: "x"})
	}()
	told("that it may be")
	require.Empty(t, w.own)
	p.Away(false)

	require.NoError(t, <-wrote)
	told("that it is")
}

// A session that has broken in the meantime takes no notification with it.
func TestABrokenSessionLosesNoNotification(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	next := notifications(t, s.URL)
	other := storetest.OpenSide(t, s.URL, 1, 2, 1) // one session
	write(t, other.DB)
	require.Empty(t, next())
	write(t, other.DB) // to be said a second after the first
	var pid int
	require.NoError(t, other.DB.Read(t.Context(), "asking who it is", func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&pid)
	}))
	conn, err := pgx.Connect(t.Context(), s.URL)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), `SELECT pg_terminate_backend($1, 5000)`, pid)
	require.NoError(t, err)
	time.Sleep(1500 * time.Millisecond) // it is tried on that one

	_, err = other.DB.Now(t.Context())

	require.NoError(t, err)
	require.Empty(t, next())
}
