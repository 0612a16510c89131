package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/fsync"
	"github.com/spawnmesh/spawnmesh/internal/instance"
	"github.com/spawnmesh/spawnmesh/internal/node"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// dir returns the absolute data directory: the flag, the environment, or the
// place where such things belong. It refuses where the call is about another machine.
func (a *app) dir() (string, error) {
	if err := a.onHost(); err != nil {
		return "", err
	}
	for _, d := range []string{a.dataDir, a.getenv("SPAWNMESH_DATA_DIR")} {
		if info, err := os.Stat(d); err == nil && !info.IsDir() {
			return "", misuse("%s is a file, and an instance lives in a directory", d).Hinting("name its data directory with --data-dir")
		}
		if d != "" {
			return filepath.Abs(d)
		}
	}
	if os.Geteuid() == 0 {
		return "/var/lib/spawnmesh", nil
	}
	if d := a.getenv("XDG_STATE_HOME"); d != "" {
		return filepath.Join(d, "spawnmesh"), nil
	}
	home := a.getenv("HOME")
	if home == "" {
		return "", misuse("no data directory: give --data-dir, or set SPAWNMESH_DATA_DIR or HOME")
	}
	return filepath.Join(home, ".local", "state", "spawnmesh"), nil
}

// self is how this program is called for the same instance, for hints.
func (a *app) self() string {
	if a.context != "" {
		return commands.ShellLine([]string{"spawnmesh", "--context", a.context})
	}
	if a.dataDir == "" {
		return "spawnmesh"
	}
	return commands.ShellLine([]string{"spawnmesh", "--data-dir", a.dataDir})
}

// line is a command line for the same instance, and where it is about the backlog
// for the same workspace, as it can be pasted.
func (a *app) line(words ...string) string { return a.quoted(words[0], commands.ShellLine(words)) }

// quoted is line of words that are quoted already, of which command is the first.
func (a *app) quoted(command, words string) string {
	if a.workspace != "" && a.workspace != backlog.MainWorkspace && slices.Contains([]string{"backlog", "budget", "quota", "lane", "freeze", "unfreeze"}, command) {
		words += " " + commands.ShellLine([]string{"--workspace", a.workspace})
	}
	return a.self() + " " + words
}

// options say where the instance of this call lives.
func (a *app) options(log *slog.Logger) (instance.Options, error) {
	dir, err := a.dir()
	return instance.Options{Dir: dir, DatabaseURL: a.databaseURL(), BinDir: a.getenv("SPAWNMESH_PG_BIN"), PostgresUser: a.getenv("SPAWNMESH_PG_USER"),
		Log: log, Made: a.sayFresh}, err
}

// open opens the instance for a process that serves.
func (a *app) open(ctx context.Context, log *slog.Logger, create bool, l *lasting) (*instance.Instance, error) {
	o, err := a.options(log)
	if err != nil {
		return nil, err
	}
	o.Made, o.Doing = nil, func(what string) { l.now("starting: " + what) } // who serves says what it serves
	return instance.Open(ctx, o, create)
}

// withInstance runs one command on the database of the instance that is there, with
// or without a process that serves in the data directory.
func (a *app) withInstance(ctx context.Context, fn func(ctx context.Context, in *instance.Instance) error) error {
	return a.visit(ctx, false, fn)
}

// makingInstance is withInstance for a command that may be the first: it makes the
// instance where there is none.
func (a *app) makingInstance(ctx context.Context, fn func(ctx context.Context, in *instance.Instance) error) error {
	return a.visit(ctx, true, fn)
}

func (a *app) visit(ctx context.Context, create bool, fn func(ctx context.Context, in *instance.Instance) error) (err error) {
	var in *instance.Instance
	err = a.longer("opening the database", func(o instance.Options) (err error) {
		in, err = instance.Visit(ctx, o, create)
		return err
	})
	if err != nil {
		return err
	}
	defer func() {
		if e := in.Close(ctx); err == nil {
			err = e
		}
	}()
	err = fn(ctx, in)
	if r, ok := errors.AsType[*commands.Refused](err); ok {
		return r // it says all that there is to say
	}
	return err
}

// asking hands fn a client of the instance in the data directory: over its socket where it runs,
// else of the same handlers in this process.
func (a *app) asking(ctx context.Context, fn func(ctx context.Context, c *control.Client) error) error {
	return a.ask(ctx, false, fn)
}

// askingFirst is asking for a command that may be the first: it makes the instance where there is
// none.
func (a *app) askingFirst(ctx context.Context, fn func(ctx context.Context, c *control.Client) error) error {
	return a.ask(ctx, true, fn)
}

func (a *app) ask(ctx context.Context, create bool, fn func(ctx context.Context, c *control.Client) error) error {
	if a.away() {
		return a.askAway(ctx, fn)
	}
	dir, err := a.dir()
	if err != nil {
		return err
	}
	if control.Runs(ctx, dir) {
		return fn(ctx, a.here(dir))
	}
	return a.visit(ctx, create, func(ctx context.Context, in *instance.Instance) error { return within(ctx, in, fn) })
}

// askAway hands fn a client of the hub that a context leads to.
func (a *app) askAway(ctx context.Context, fn func(ctx context.Context, c *control.Client) error) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	return fn(ctx, c)
}

// within hands fn a client of an instance at rest.
func within(ctx context.Context, in *instance.Instance, fn func(ctx context.Context, c *control.Client) error) error {
	c, stop := control.Within(ctx, in.Dir, node.AtRest(in))
	defer stop()
	return fn(ctx, c)
}

// withReader hands fn a client that reads of agents: of the instance that runs or, where
// none does and the data directory is a spoke's, of what its database knows.
func (a *app) withReader(ctx context.Context, fn func(ctx context.Context, c *control.Client) error) error {
	if a.away() {
		return a.askAway(ctx, fn)
	}
	dir, err := a.dir()
	if err != nil {
		return err
	}
	if control.Runs(ctx, dir) {
		return fn(ctx, a.here(dir))
	}
	switch _, err := instance.LoadKeys(dir); {
	case errors.Is(err, signing.ErrNoKeys):
		return fn(ctx, a.here(dir)) // it says that there is none
	case err != nil:
		return err
	}
	return a.withInstance(ctx, func(ctx context.Context, in *instance.Instance) error {
		conns, err := in.DB.Connections(ctx)
		if err != nil {
			return err
		}
		with := func(a store.Authority) bool {
			return slices.ContainsFunc(conns, func(c store.Connection) bool { return c.Authority == a })
		}
		if !with(store.Obeys) {
			return fn(ctx, a.here(dir)) // it says that no instance runs
		}
		if with(store.Commands) && a.forPeople() {
			fmt.Fprintln(a.err, "no instance runs here: only agents of this host are known")
		}
		return within(ctx, in, fn)
	})
}

// actor is who the audit says did it.
func actor() string { return "uid:" + strconv.Itoa(os.Geteuid()) }

func (a *app) sayFresh(dir string) {
	if a.forPeople() {
		fmt.Fprintf(a.err, "a new instance was made in %s\n", dir)
	}
}

func (a *app) databaseURL() string {
	if url := a.getenv("SPAWNMESH_DATABASE_URL"); url != "" {
		return url
	}
	return a.getenv("DATABASE_URL")
}

// writeReady tells a script that waits for it that the instance serves. The file
// appears whole: a reader never sees half of it.
func writeReady(path, text string) error {
	if path == "" {
		return nil
	}
	if err := fsync.Replace(path, []byte(text+"\n"), 0o644); err != nil {
		return fmt.Errorf("writing the ready file: %w", err)
	}
	return nil
}
