package main

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/contexts"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/tracing"
)

// book reads the contexts of this user.
func (a *app) book() (*contexts.Book, error) {
	dir := a.getenv("XDG_CONFIG_HOME")
	if dir == "" {
		home := a.getenv("HOME")
		if home == "" {
			return contexts.Read("") // a service has none, and needs none
		}
		dir = filepath.Join(home, ".config")
	}
	return contexts.Read(filepath.Join(dir, "spawnmesh", "contexts.yaml"))
}

// target is the context that this call is about, "" where it is about an instance on this host: that of the flag, of the
// environment, or else the one in use, unless a data directory is named.
func (a *app) target() (name string, c contexts.Context, err error) {
	name = cmp.Or(a.context, a.getenv("SPAWNMESH_CONTEXT"))
	dir := cmp.Or(a.dataDir, a.getenv("SPAWNMESH_DATA_DIR"))
	if name != "" && dir != "" {
		return "", c, misuse("the context %s and the data directory %s are two instances", commands.Clip(name), dir).Hinting("name one of them: --context or SPAWNMESH_CONTEXT, or --data-dir or SPAWNMESH_DATA_DIR")
	}
	if dir != "" {
		return "", c, nil
	}
	b, err := a.book()
	if err != nil {
		return "", c, err
	}
	if name = cmp.Or(name, b.Current); name == "" {
		return "", c, nil
	}
	c, err = b.Get(name)
	return name, c, err
}

// onHost refuses what needs the files of an instance where the call is about one on another machine.
func (a *app) onHost() error {
	name, c, err := a.target()
	if name == "" || err != nil {
		return err
	}
	return misuse("this needs the files of an instance, and the context %s leads to %s", name, c.URL).
		Hinting("run it on that host; for an instance on this host name its --data-dir, or use no context: spawnmesh context use --none")
}

// away reports whether the call is about an instance on another machine.
func (a *app) away() bool {
	name, _, err := a.target()
	return name != "" && err == nil
}

// hostRuns reports whether the instance of the call runs. One on another machine has answered.
func (a *app) hostRuns(ctx context.Context) (bool, error) {
	if a.away() {
		return true, nil
	}
	dir, err := a.dir()
	return err == nil && control.Runs(ctx, dir), err
}

// client reaches the running instance in the data directory, or the one that a context leads to.
func (a *app) client() (*control.Client, error) {
	name, c, err := a.target()
	if err != nil {
		return nil, err
	}
	if name != "" {
		client, err := remoteClient(name, c)
		if err == nil {
			client.Trace = a.getenv(tracing.Variable)
		}
		return client, err
	}
	dir, err := a.dir()
	if err != nil {
		return nil, err
	}
	return a.here(dir), nil
}

// here is a client of the instance in dir on this host. People are told when it hangs.
func (a *app) here(dir string) *control.Client {
	c := control.NewClient(dir)
	c.Trace = a.getenv(tracing.Variable)
	if a.forPeople() {
		says := a.err
		c.Hung = func(since time.Duration) {
			fmt.Fprintf(says, "waiting for the instance in %s, which does not answer (why: %s), %s so far\n", dir, a.line("doctor"), since.Round(time.Second))
		}
	}
	return c
}

func remoteClient(name string, c contexts.Context) (*control.Client, error) {
	t, err := c.Token()
	if err != nil {
		return nil, err
	}
	pool, err := c.Authority()
	if err != nil {
		return nil, err
	}
	return control.NewRemoteClient(control.Remote{Context: name, URL: c.URL, Token: t.Text(), Authority: pool}), nil
}
