package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/singleflight"

	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/signing"
)

// DB is one instance's database.
type DB struct {
	pool    watchedPool
	self    signing.InstanceID
	signer  *signing.Signer
	ring    *signing.Ring
	sealing *signing.Decrypter
	marks   atomic.Int64 // one for each transaction

	cursors cursors
	told    chan struct{} // a notification came

	watcher  atomic.Pointer[Watcher] // nil: another process may watch
	notifier notifier                // of this process, while it does not watch

	standings sync.Map // by connection: the Standing that was read last

	inbox inboxRoom

	outages atomic.Int64       // times that the server was lost
	away    atomic.Bool        // it is
	asking  singleflight.Group // asks it whether it is there
}

// A Tracer is told of every statement.
type Tracer = pgx.QueryTracer

// Config says whose database to open and how.
type Config struct {
	URL      string             // Postgres connection string
	Self     signing.InstanceID // the instance that owns the database
	Signer   *signing.Signer    // the first key that signs what goes into the outbox
	Ring     *signing.Ring      // finds those that came after it; nil: there are none, and there will be none
	Sealing  *signing.Decrypter // opens what is encrypted to the instance; nil: no values are ordered
	PoolSize int                // connections; 0 means 12
	Tracer   Tracer             // nil = nobody is told
}

// A session of the server holds 3 to 10 MiB, most of it the plans of what it has run. So
// one that nobody uses goes within a minute, and one that is used now and then for ever
// is replaced by one that has run nothing else yet.
const (
	sessionIdle = 30 * time.Second
	sessionLife = 10 * time.Minute
)

// outageLimit is how long a method keeps trying while the server is away.
const outageLimit = 20 * time.Second

// Open connects to the database, brings its schema up to date and checks that
// it is this instance's and keeps what it acknowledges. The server may still be
// starting: Open waits for it as long as ctx allows.
func Open(ctx context.Context, c Config) (*DB, error) {
	pc, err := poolConfig(c)
	if err != nil {
		return nil, err
	}
	db := &DB{self: c.Self, signer: c.Signer, ring: c.Ring, sealing: c.Sealing, told: make(chan struct{}, 1)}
	pc.ConnConfig.OnNotification = db.heard
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("opening the database: %w", err)
	}
	db.pool = watchedPool{pool, db}
	if err := db.open(ctx, c.URL); err != nil {
		db.pool.Close()
		return nil, err
	}
	return db, nil
}

func (db *DB) open(ctx context.Context, url string) error {
	err := db.retry(ctx, func(ctx context.Context) error {
		ready, err := db.prepared(ctx)
		if ready || err != nil && transient(err) {
			return err
		}
		db.pool.Reset()          // the user may have one connection only
		return Prepare(ctx, url) // which names what prepared only fails for
	})
	if err != nil {
		return err
	}
	return db.adopt(ctx)
}

func poolConfig(c Config) (*pgxpool.Config, error) {
	pc, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		return nil, fmt.Errorf("reading the database address: %w", err)
	}
	pc.MaxConns = int32(c.PoolSize)
	if c.PoolSize == 0 {
		pc.MaxConns = 12
	}
	pc.MaxConnIdleTime, pc.HealthCheckPeriod = sessionIdle, sessionIdle
	pc.MaxConnLifetime, pc.MaxConnLifetimeJitter = sessionLife, sessionLife/10
	pc.ConnConfig.RuntimeParams["application_name"] = "spawnmesh"
	pc.BeforeConnect, pc.ConnConfig.Tracer = nameSession, c.Tracer
	pc.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		keepSession(conn)
		textIDs(conn)
		roomyBytes(conn)
		return nil
	}
	// The statements are long and always the same: planning each anew would cost
	// more than running it.
	pc.ConnConfig.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
	// A row by an index costs what a row in order costs: fewer rows are always cheaper.
	pc.ConnConfig.RuntimeParams["random_page_cost"] = "1"
	// Every statement is written for its index. Until a table has been analysed
	// the planner believes it is empty, reads all of it, and keeps that plan.
	for _, way := range []string{"enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin"} {
		pc.ConnConfig.RuntimeParams[way] = "off"
	}
	// A table without another way costs so much then that it would be compiled,
	// which takes longer than any of our statements.
	pc.ConnConfig.RuntimeParams["jit"] = "off"
	// No statement runs as the tables' owner, whom no policy binds.
	pc.ConnConfig.RuntimeParams["role"] = engineRole
	return pc, nil
}

// Self is the instance whose database it is.
func (db *DB) Self() signing.InstanceID { return db.self }

// Close ends all connections, after it has notified the watching process of the last commits.
func (db *DB) Close() {
	db.notifyLast()
	db.pool.Close()
}

// adopt makes the database this instance's, or finds that it is another's.
func (db *DB) adopt(ctx context.Context) error {
	var owner string
	// Two statements: one alone does not see what another opener inserted meanwhile.
	err := db.retry(ctx, func(ctx context.Context) error {
		if _, err := db.pool.Exec(ctx, `INSERT INTO instance (id) VALUES ($1) ON CONFLICT DO NOTHING`, db.self); err != nil {
			return err
		}
		return db.pool.QueryRow(ctx, `SELECT id FROM instance`).Scan(&owner)
	})
	if err != nil {
		return fmt.Errorf("claiming the database for instance %s: %w", db.self, err)
	}
	if owner != string(db.self) {
		return fmt.Errorf("the database belongs to instance %s and the keys to instance %s; "+
			"point the data directory and DATABASE_URL at the same instance", owner, db.self)
	}
	return db.adoptKey(ctx)
}

// Read runs fn, again after an outage, on a connection without a transaction:
// each statement sees what is committed when it begins. fn changes nothing.
func (db *DB) Read(ctx context.Context, doing string, fn func(ctx context.Context, conn *pgxpool.Conn) error) error {
	err := db.retry(ctx, func(ctx context.Context) error {
		return db.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error { return fn(ctx, conn) })
	})
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

func (db *DB) retry(ctx context.Context, fn func(context.Context) error) error {
	next, until := 10*time.Millisecond, time.Now().Add(outageLimit)
	for {
		err := db.try(ctx, fn)
		if readOnly(err) {
			db.pool.Reset() // a session stays what it was when it began
		}
		if err == nil || !transient(err) || ctx.Err() != nil || !time.Now().Before(until) {
			return full(err)
		}
		if wait.For(ctx, next) != nil {
			return full(err)
		}
		next = min(2*next, 500*time.Millisecond)
	}
}

// ErrRaced says that somebody else holds what a transaction needs at this moment,
// which must not wait for it: the transaction begins anew.
var ErrRaced = errors.New("somebody else changes the same rows at this moment")

// transient reports whether err is an outage or a lost race, after which the
// same work may succeed.
func transient(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch {
		case pg.Code == "40001", pg.Code == "40P01", pg.Code == "53300", readOnly(err):
			return true
		case pg.Code == "23505" && slices.Contains([]string{"mirrors_pkey", "mirrors_idempotency", "tasks_key", "tasks_idempotency"}, pg.ConstraintName):
			return true // somebody else used the id or key a moment ago: the next look finds it
		}
	}
	return errors.Is(err, ErrRaced) || outage(err)
}

// readOnly reports whether err says that the server takes no changes now, as a standby does until it has taken over.
func readOnly(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "25006"
}

// outage reports whether err says that the server cannot be reached, or went away.
func outage(err error) bool {
	if err == nil {
		return false
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return strings.HasPrefix(pg.Code, "08") || strings.HasPrefix(pg.Code, "57P0")
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, driver.ErrBadConn) || strings.Contains(err.Error(), "conn closed")
}

// Offset returns how far the clock of the database is ahead of that of this process, at least: what the way there and back may
// explain is left out.
func (db *DB) Offset(ctx context.Context) (time.Duration, error) {
	begun := time.Now()
	now, err := db.Now(ctx)
	if err != nil {
		return 0, err
	}
	ended := time.Now()
	switch {
	case now.After(ended):
		return now.Sub(ended), nil
	case now.Before(begun):
		return now.Sub(begun), nil
	}
	return 0, nil
}

// Now returns the database's time, the one that decides.
func (db *DB) Now(ctx context.Context) (now time.Time, err error) {
	err = db.retry(ctx, func(ctx context.Context) error {
		return db.pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now)
	})
	if err != nil {
		return now, fmt.Errorf("asking the database for the time: %w", err)
	}
	return now, nil
}
