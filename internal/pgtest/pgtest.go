// Package pgtest gives each test its own empty database on a real Postgres.
//
// A test binary has one private cluster, started when the first test asks for a database and kept in memory where
// that is possible. [Main] ends it; a binary that uses [URL] therefore has
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
// A binary that is killed takes its server with it, and leaves its directory to the next one that starts. Nothing is
// skipped: where no server programs are found, the test fails and says what to run.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spawnmesh/spawnmesh/store/postgres"
)

// shared is the cluster of this test binary. It is the one thing here that cannot be a value in somebody's hands:
// tests that know nothing of each other use it.
var shared struct {
	sync.Mutex
	main      bool // Main runs, so somebody will end the cluster
	instance  *instance
	err       error // why there is no instance; the next test need not try again
	databases int   // made so far
	prepare   sync.Once
	unready   error // why there is no database to copy for Prepared
}

// Main runs the tests, ends the cluster they shared, removes its directory, and exits.
func Main(m *testing.M) {
	shared.main = true
	if err := InMemory(); err != nil {
		fmt.Fprintln(os.Stderr, "keeping temporary files in memory:", err)
	}
	code := m.Run()
	if shared.instance != nil {
		if err := shared.instance.end(); err != nil {
			fmt.Fprintln(os.Stderr, "ending the test cluster:", err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// URL returns the address of a fresh, empty database, for its owner: the role that instances have, which is no
// superuser. The database is dropped when the test ends, with whoever is still connected to it. Tests may run in parallel; there is room for 200 connections.
func URL(t testing.TB) string {
	t.Helper()
	return database(t, "")
}

// Prepared returns the address of a database that prepare has made ready, as URL
// does. Only the first one is made ready; the others are copies of it. A binary
// prepares in one way.
func Prepared(t testing.TB, prepare func(ctx context.Context, address string) error) string {
	t.Helper()
	i, _ := fromShared(t)
	shared.prepare.Do(func() { shared.unready = i.prepareFirst(context.WithoutCancel(t.Context()), prepare) })
	if shared.unready != nil {
		t.Fatalf("preparing the database that tests get copies of: %v", shared.unready)
	}
	return database(t, " TEMPLATE "+prepared)
}

const prepared = "prepared" // the name of the first one

func (i *instance) prepareFirst(ctx context.Context, prepare func(ctx context.Context, address string) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	address, err := url.Parse(i.cluster.URL())
	if err != nil {
		return err
	}
	address.Path = "/" + prepared
	if err := i.create(ctx, prepared, ""); err != nil {
		return err
	}
	return prepare(ctx, address.String())
}

// Copy returns the address of a database with the content of another one, as URL
// does. Nobody is connected to the other one.
func Copy(t testing.TB, of string) string {
	t.Helper()
	address, err := url.Parse(of)
	if err != nil {
		t.Fatalf("reading the address of the database to copy: %v", err)
	}
	return database(t, " TEMPLATE "+strings.TrimPrefix(address.Path, "/"))
}

func database(t testing.TB, template string) string {
	t.Helper()
	i, number := fromShared(t)
	name := databaseName(number, t.Name())
	address, err := url.Parse(i.cluster.URL())
	if err != nil {
		t.Fatalf("reading the address of the test cluster: %v", err)
	}
	address.Path = "/" + name

	if err := i.create(t.Context(), name, template); err != nil {
		t.Fatalf("making the test's database: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := i.drop(ctx, name); err != nil {
			t.Errorf("dropping the test's database: %v", err)
		}
	})
	return address.String()
}

// Cluster starts a private server for this test alone, for instance to kill it. It ends with the test.
func Cluster(t testing.TB) *postgres.Cluster {
	t.Helper()
	return cluster(t, "")
}

// EveryVersion runs fn as a subtest for each major version of PostgreSQL whose server programs this machine has, with
// a private server of that version.
func EveryVersion(t *testing.T, fn func(t *testing.T, c *postgres.Cluster)) {
	t.Helper()
	dirs := postgres.FindAll(t.Context())
	if len(dirs) == 0 {
		t.Fatal(explain(&postgres.NotFoundError{}))
	}
	for major, dir := range dirs {
		t.Run(fmt.Sprintf("PostgreSQL %d", major), func(t *testing.T) { fn(t, cluster(t, dir)) })
	}
}

func cluster(t testing.TB, binDir string) *postgres.Cluster {
	t.Helper()
	i, err := start(t.Context(), binDir)
	if err != nil {
		t.Fatal(explain(err))
	}
	t.Cleanup(func() {
		if err := i.end(); err != nil {
			t.Errorf("ending the test's cluster: %v", err)
		}
	})
	return i.cluster
}

// fromShared returns the cluster of this binary, starting it if need be, and a number that no other test has.
func fromShared(t testing.TB) (*instance, int) {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if !shared.main {
		t.Fatal("this test binary needs: func TestMain(m *testing.M) { pgtest.Main(m) }")
	}
	if shared.instance == nil && shared.err == nil {
		shared.instance, shared.err = start(context.WithoutCancel(t.Context()), "") // it outlives the first test
	}
	if shared.err != nil {
		t.Fatal(explain(shared.err))
	}
	shared.databases++
	return shared.instance, shared.databases
}

// explain puts what to do in front of an error that somebody without a server will see.
func explain(err error) string {
	if _, ok := errors.AsType[*postgres.NotFoundError](err); ok {
		// The script has nothing to do where instances use DATABASE_URL. Tests start servers all the same.
		return fmt.Sprintf("this test needs PostgreSQL server programs: run DATABASE_URL= scripts/ensure-postgres\n%v", err)
	}
	return fmt.Sprintf("starting the test cluster: %v", err)
}

var unfit = regexp.MustCompile(`[^a-z0-9]+`)

// databaseName says which test a database is for, within the 63 bytes of a Postgres name.
func databaseName(number int, test string) string {
	name := fmt.Sprintf("t%d_%s", number, unfit.ReplaceAllString(strings.ToLower(test), "_"))
	return name[:min(len(name), 63)]
}

// create makes a database by copying files, which takes a fifth of the time that logging every page of it does. A copy
// is as closed as the databases of instances are: who may connect is not copied.
func (i *instance) create(ctx context.Context, name, template string) error {
	_, err := i.owner.Exec(ctx, "CREATE DATABASE "+name+template+" OWNER spawnmesh STRATEGY FILE_COPY")
	if err == nil && template != "" {
		_, err = i.owner.Exec(ctx, "REVOKE CONNECT, TEMPORARY ON DATABASE "+name+" FROM PUBLIC")
	}
	return err
}

func (i *instance) drop(ctx context.Context, name string) error {
	_, err := i.owner.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
	return err
}

// ServerLog returns the path of what the server of this test binary prints.
func ServerLog(t testing.TB) string {
	t.Helper()
	i, _ := fromShared(t)
	return filepath.Join(i.dir, "postgres.log")
}

// adminRole is a superuser that only servers of tests have, and its password.
const adminRole = "test_admin"

// AdminSQL makes that role on a server that a test starts by itself ([postgres.Upkeep]).
const AdminSQL = "CREATE ROLE " + adminRole + " SUPERUSER LOGIN PASSWORD '" + adminRole + "'"

// Admin returns the same address for a superuser, who sees and may do everything: what a test looks at or breaks from
// outside. It is for servers of this package, and for those with [AdminSQL].
func Admin(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		panic(err) // it was one when it was given
	}
	u.User = url.UserPassword(adminRole, adminRole)
	return u.String()
}
