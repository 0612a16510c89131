package backlog_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
	"github.com/spawnmesh/spawnmesh/store/postgres"
)

// stays is the owner of a database that does not stop it.
func stays() bool { return false }

// Two hundred workers, each with a database handle of its own as processes have,
// wait on a private server as instances start it. Each has one connection, and
// each gets a task.
func TestTwoHundredWorkersWait(t *testing.T) {
	t.Parallel()
	const workers = 200
	url := privateServer(t, nil)
	s := openSide(t, url, 2)
	b := boardOf(t, s, backlog.MainWorkspace)
	var all sync.WaitGroup
	got := make(chan string, workers)
	for i := range workers {
		db, err := store.Open(t.Context(), store.Config{URL: url, Self: s.Self(), Signer: s.Signing})
		require.NoError(t, err)
		t.Cleanup(db.Close)
		worker, err := backlog.Open(db, nobodyAsks).Workspace(backlog.MainWorkspace, "ann")
		require.NoError(t, err)
		all.Go(func() {
			list, err := worker.ClaimWait(t.Context(), backlog.ClaimTerms{Owner: fmt.Sprint("worker-", i), Limit: 1, Lease: time.Minute}, time.Now().Add(5*time.Minute), stays)
			if err != nil || len(list) != 1 {
				t.Errorf("worker %d has %d tasks: %v", i, len(list), err)
				return
			}
			got <- list[0].Fence.Task
		})
	}
	require.Eventually(t, func() bool { return s.Count(t, `SELECT count(*) FROM listeners`) == workers }, 2*time.Minute, 50*time.Millisecond)

	connections := s.Count(t, `SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'spawnmesh %' AND datname = current_database()`)
	for range workers / 20 {
		create(t, b, make20()...)
	}
	all.Wait()

	require.LessOrEqual(t, connections, workers+2, "one each, and ours")
	close(got)
	tasks := map[string]bool{}
	for task := range got {
		tasks[task] = true
	}
	require.Len(t, tasks, workers)
}

// Many who wait in one process leave its connections to others, are woken together, and each gets a task.
func TestManyWaitWithOneConnection(t *testing.T) {
	t.Parallel()
	const workers = 40
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	two := boardOf(t, openSide(t, s.URL, 2), backlog.MainWorkspace)
	create(t, b, backlog.TaskSpec{Key: "gate", Title: "x", NotBefore: time.Now().Add(time.Hour)})
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			list, err := two.ClaimWait(t.Context(), backlog.ClaimTerms{Owner: fmt.Sprint("worker-", i), Lease: time.Minute}, time.Now().Add(5*time.Minute), stays)
			if err != nil || len(list) != 1 {
				t.Errorf("worker %d has %d tasks: %v", i, len(list), err)
			}
		})
	}
	require.Eventually(t, func() bool { return s.Count(t, `SELECT count(*) FROM claimers`) == workers }, time.Minute, 10*time.Millisecond)
	require.EqualValues(t, 1, s.Count(t, `SELECT count(*) FROM listeners`))
	patient, done := context.WithTimeout(t.Context(), 5*time.Second)
	defer done()
	for range 40 {
		_, err := two.Show(patient, "gate")
		require.NoError(t, err, "others wait for a connection behind who waits for tasks")
	}

	create(t, b, make20()...)
	create(t, b, make20()...)

	all.Wait()
	require.EqualValues(t, 0, s.Count(t, `SELECT count(*) FROM listeners`))
}

// Who waits is woken when a task becomes claimable, and need not look by himself.
func TestWhatBecomesClaimableWakesWhoWaits(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		before func(scene)
		act    func(scene) error
	}{
		"a new task": {func(scene) {}, func(s scene) error {
			_, err := s.b.Create(s.Context(), backlog.TaskSpec{Title: "x"})
			return err
		}},
		"one that its holder gives back": {func(s scene) { s.claimed("a") }, func(s scene) error {
			_, err := s.b.Release(s.Context(), backlog.Act{Task: "a", Reason: "so"})
			return err
		}},
		"one that waited for another": {func(s scene) {
			s.claimed("a")
			create(s, s.b, backlog.TaskSpec{Title: "x", DependsOn: []string{"a"}})
		}, func(s scene) error {
			_, err := s.b.Complete(s.Context(), backlog.Act{Task: "a"})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSide(t)
			here := scene{t, s, boardOf(t, s, backlog.MainWorkspace)}
			tt.before(here)
			waiting := boardOf(t, openSide(t, s.URL, 1), backlog.MainWorkspace)
			l, err := waiting.Listen(t.Context())
			require.NoError(t, err)
			defer l.Close()
			patient, done := context.WithTimeout(t.Context(), time.Minute)
			defer done()
			told := make(chan error)
			for range 2 {
				other, err := waiting.Listen(t.Context())
				require.NoError(t, err)
				defer other.Close()
				go func() { told <- other.Wait(patient, time.Hour) }()
			}

			require.NoError(t, tt.act(here))

			require.NoError(t, l.Wait(patient, time.Hour), "nobody has told it")
			for range 2 {
				require.NoError(t, <-told, "nobody has told the others of its process")
			}
			require.NotEmpty(t, claimCards(t, here.b, nil))
		})
	}
}

func make20() (list []backlog.TaskSpec) {
	for range 20 {
		list = append(list, backlog.TaskSpec{Title: "x"})
	}
	return list
}

// privateServer starts a server with the settings that instances have.
func privateServer(t *testing.T, settings map[string]string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "spawnmesh-private-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c, err := postgres.Start(t.Context(), postgres.Config{Dir: dir, Settings: settings})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	return c.URL()
}

// A server without a connection left is said to be that, with what to do.
func TestAFullServerSaysSo(t *testing.T) {
	t.Parallel()
	url := privateServer(t, map[string]string{"max_connections": "8", "superuser_reserved_connections": "0", "max_wal_senders": "0", "max_replication_slots": "0"})
	s := storetest.OpenSide(t, url, 1, 2, 2)
	for {
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			break
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
	}

	_, err := store.Open(t.Context(), store.Config{URL: url, Self: s.Self(), Signer: s.Signing, PoolSize: 2})

	require.Equal(t, commands.StoreDown, commands.CodeOf(err), "%v", err)
	require.ErrorContains(t, err, "no connection left")
}
