// Package postgres runs a private Postgres for an instance that was given none.
//
// The server is a real one: the PostgreSQL programs of this machine, run as a child process on a data directory that
// nothing else uses. It listens on no port. Clients reach it through a Unix socket in a directory that only its own OS
// user and root may enter, and with a password from Dir/keys/pgpass. The program's role is no superuser.
//
// What holds when something dies:
//   - This process, in whatever way: on Linux the kernel tells the server, which shuts down by itself within a second.
//     Anything still there at the next [Start] is stopped, or shown to be gone, before a new server opens the data.
//   - The server: it is started again, at most five times a minute; then [Cluster.Failed] is closed. Its connections
//     break. A commit whose answer was lost may have happened, so callers read back before they repeat it.
//   - initdb: the new cluster gets its name only when it is whole; the remains are removed by the next Start.
//
// The server is never sent SIGKILL, and no directory that holds data is ever removed. A cluster is opened only by the
// major version that made it.
//
// One process may run a directory's server at a time. [Lock] is what says so, and every caller of Start holds it. Others
// on this machine may use the running server as a [Guest].
package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
)

// Config says where a private server lives and how it runs. Only Dir is required.
type Config struct {
	// Dir is the instance's data directory, made if it is missing. The cluster lives in Dir/pg, its socket in Dir/run
	// (in /tmp when that path does not fit a socket address), and what the server prints in Dir/postgres.log, which
	// is put aside as postgres.log.1 when it has passed 8 MB at a start.
	Dir string

	// BinDir holds the programs postgres and initdb. Empty: they are looked for on PATH, where pg_config says, in the
	// usual places of Linux and macOS packages, and where scripts/ensure-postgres installs. A BinDir that does not
	// hold them is an error; nothing else is tried.
	BinDir string

	// User is the OS user to run the server as when this process is root, because PostgreSQL refuses root. Empty: the
	// first that exists of postgres, mesh, nobody. An existing cluster always runs as the user who owns it. Ignored
	// when this process is not root.
	User string

	// Settings are server settings by name, over the ones this package chooses; the operator's own Dir/pg/user.conf
	// goes over both.
	Settings map[string]string

	// Log gets a line when the server starts, ends on its own, or is found left over. Nil: no log.
	Log *slog.Logger
}

// A Cluster is a running private server. Its methods may be called from any goroutine.
type Cluster struct {
	layout
	settings map[string]string
	log      *slog.Logger
	programs programs
	account  account

	cancel context.CancelFunc // asks keep to stop the server
	kept   chan struct{}      // closed when keep has returned; stopErr is set by then
	failed chan struct{}

	stopErr error
	mu      sync.Mutex // guards pid and err
	pid     int
	err     error
}

// Start makes the cluster in cfg.Dir if there is none, starts its server, and returns when the database accepts
// connections. Replaying the log after a crash may take long; ctx bounds all of it and nothing after Start has
// returned. The caller holds the [Lock] of cfg.Dir and releases it after [Cluster.Close].
//
// The error is a [*NotFoundError] when this machine has no fitting server programs; then nothing was changed.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	c, err := open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	srv, err := c.launch(ctx)
	if err != nil {
		return nil, fmt.Errorf("starting the database server of %s: %w", c.dir, err)
	}

	keepCtx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // ends with Close, not with the start
	c.cancel = cancel
	go c.keep(keepCtx, srv) // Close awaits it through kept
	return c, nil
}

// open finds everything the server needs and makes what is missing, up to a cluster that is ready to be started. It
// changes nothing on disk before it knows that programs and user fit.
func open(ctx context.Context, cfg Config) (*Cluster, error) {
	where, err := layoutOf(cfg.Dir)
	if err != nil {
		return nil, err
	}
	if err := checkSettings(cfg.Settings); err != nil {
		return nil, err
	}
	major, err := where.major()
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		layout:   where,
		settings: cfg.Settings,
		log:      cfg.Log,
		kept:     make(chan struct{}),
		failed:   make(chan struct{}),
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.programs, err = findFor(ctx, cfg.BinDir, major); err != nil && major != 0 {
		return nil, fmt.Errorf("opening the cluster %s: %w", c.data, err)
	} else if err != nil {
		return nil, err
	}
	if c.account, err = accountFor(cfg.User, c.data); err != nil {
		return nil, err
	}
	return c, c.prepare(ctx, major == 0)
}

// prepare makes the directories, the cluster itself when fresh, and its configuration.
func (c *Cluster) prepare(ctx context.Context, fresh bool) error {
	if err := c.account.admitTo(ctx, c.dir, c.programs); err != nil {
		return err
	}
	if fresh {
		if err := c.initdb(ctx); err != nil {
			return fmt.Errorf("making a cluster in %s: %w", c.dir, err)
		}
	}
	if err := c.makeRun(c.account); err != nil {
		return err
	}
	if err := c.configure(); err != nil {
		return fmt.Errorf("configuring the cluster %s: %w", c.data, err)
	}
	if err := c.changeOver(ctx); err != nil {
		return fmt.Errorf("preparing the cluster %s: %w", c.data, err)
	}
	return nil
}

// URL returns the address of the instance's database for pgx and psql, as its owner, who is no superuser. The address
// is no secret: it names the file that has the password. It stays the same when the server is started again.
func (c *Cluster) URL() string { return c.url() }

func (l layout) url() string {
	// In a connection URI a plus sign is a plus sign.
	escape := func(path string) string { return strings.ReplaceAll(url.QueryEscape(path), "+", "%20") }
	return fmt.Sprintf("postgres://%s@/%s?host=%s&port=%s&passfile=%s", programRole, database, escape(l.run), port, escape(l.passwordFile()))
}

// Pid returns the process id of the server that runs now, and 0 while there is none.
func (c *Cluster) Pid() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pid
}

// Failed is closed when the server has died too often to be started again; [Cluster.Err] says why. Close still has
// to be called.
func (c *Cluster) Failed() <-chan struct{} { return c.failed }

// Err returns why the cluster has failed, and nil as long as it has not.
func (c *Cluster) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close stops the server and waits until it has ended: a fast shutdown, which breaks open transactions, and after 30
// seconds an immediate one, which costs a replay of the log at the next start. It returns an error if the server was
// still there 10 seconds later, and earlier if ctx ends; the server then still has the order to stop. Closing again
// waits for the same end.
func (c *Cluster) Close(ctx context.Context) error {
	c.cancel()
	select {
	case <-c.kept:
		return c.stopErr
	case <-ctx.Done():
		return fmt.Errorf("waiting for the database server of %s to stop: %w", c.dir, ctx.Err())
	}
}
