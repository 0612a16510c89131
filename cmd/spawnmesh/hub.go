package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
)

func (a *app) hubCommand() *cobra.Command {
	c := &cobra.Command{Use: "hub", Short: "Run a hub"}
	var h hub.Hub
	var ready string
	run := &cobra.Command{
		Use: "run", Short: "Run a hub in the foreground", Args: cobra.NoArgs,
		Long: `Run a hub in the foreground until it is interrupted.

It listens for its spokes on --link and for its operator on a socket in the data
directory. All of the link is TLS 1.3; a join token names the key that it must show.

A hub that serves on every address of its machine (--link 0.0.0.0:7422) invites
nobody until --advertise says how spokes reach it.

It keeps agents' output in files below logs/ in the data directory, within bounds:
the oldest goes first, and logs marks what is gone.`,
		Example: `  spawnmesh --data-dir H hub run --link 127.0.0.1:7422
  spawnmesh --data-dir H hub run --link 0.0.0.0:7422 --advertise hub.example.org:7422`,
		RunE: func(c *cobra.Command, _ []string) error { return a.runHub(c.Context(), &h, ready) },
	}
	run.Flags().StringVar(&h.Listen, "link", "127.0.0.1:7422", "serve spokes on `ADDRESS`; port 0 picks a free one")
	run.Flags().StringVar(&h.Advertise, "advertise", "", "`HOST:PORT` that join tokens name, where it is another")
	run.Flags().StringVar(&h.Name, "name", defaultName(), "`NAME` that this hub gives itself")
	run.Flags().Int64Var(&h.Output.Agent, "output-per-agent", 64<<20, "keep `BYTES` of each agent's output, the newest")
	run.Flags().Int64Var(&h.Output.Spoke, "output-per-spoke", 1<<30, "keep `BYTES` of the output of all agents of a spoke")
	run.Flags().DurationVar(&h.Output.Age, "output-age", 30*24*time.Hour, "keep output for `TIME` after the last of it")
	run.Flags().StringVar(&ready, "ready-file", "", "write the link's address to `FILE` once the hub serves")
	c.AddCommand(run)
	return c
}

// defaultName is this host's name, as far as it is one that the mesh allows.
func defaultName() string {
	host, err := os.Hostname()
	if err != nil {
		return "hub"
	}
	host, _, _ = strings.Cut(strings.ToLower(host), ".")
	name := strings.Trim(regexp.MustCompile(`[^a-z0-9-]+`).ReplaceAllString(host, "-"), "-")
	if name == "" || len(name) > 63 {
		return "hub"
	}
	return name
}

// checkLink says what is wrong with the link's address before a database is
// started for nothing. Who takes the address meanwhile is found out later.
func checkLink(ctx context.Context, address string) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return commands.Refuse(commands.Conflict, "something listens on %s already", address).
			Hinting("choose another --link; port 0 picks a free one")
	}
	if err != nil {
		return misuse("serving spokes on --link %s: %v", address, err)
	}
	return l.Close()
}

func (a *app) runHub(ctx context.Context, h *hub.Hub, ready string) (err error) {
	log := a.logger(slog.LevelInfo)
	hangups := make(chan os.Signal, 1) // a hub has nothing to read again: none ends the process
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	if h.Advertise != "" {
		if err := hub.CheckAddress(h.Advertise); err != nil {
			return err
		}
	}
	if h.Output.Agent <= 0 || h.Output.Spoke <= 0 || h.Output.Age <= 0 {
		return misuse("--output-per-agent, --output-per-spoke and --output-age are above 0")
	}
	if err := checkLink(ctx, h.Listen); err != nil {
		return err
	}
	in, err := a.open(ctx, log, true)
	if err != nil {
		return err
	}
	defer func() {
		if e := in.Close(ctx); err == nil {
			err = e
		}
	}()
	h.DB, h.Keys, h.Dir, h.Log, h.Version, h.Hurry = in.DB, in.Keys, in.Dir, log, version(), a.hurry
	h.Ready = func(link string) {
		fmt.Fprintf(a.out, "hub is ready: link %s, data %s\n", link, in.Dir)
		if err := writeReady(ready, link); err != nil {
			log.ErrorContext(ctx, "telling that the hub is ready", "err", err)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return in.Watch(ctx) })
	g.Go(func() error { return h.Run(ctx) })
	return g.Wait()
}
