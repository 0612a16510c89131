package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/spoke"
)

func (a *app) hubCommand() *cobra.Command {
	c := &cobra.Command{Use: "hub", Short: "Run a hub"}
	c.AddCommand(a.hubRunner().command, a.installCommand("hub"))
	return c
}

func (a *app) hubRunner() *runner {
	var h hub.Hub
	r := &runner{a: a, hub: &h, spoke: &spoke.Spoke{}}
	run := &cobra.Command{
		Use: "run", Short: "Run a hub in the foreground; it is the spoke of hubs it joined", Args: cobra.NoArgs,
		Long: `Run a hub in the foreground until it is interrupted.

It listens for its spokes on --link and for its operator on a socket in the data
directory. All of the link is TLS 1.3; a join token names the key that it must show.

A hub that serves on every address of its machine (--link 0.0.0.0:7422) invites
nobody until --advertise says how spokes reach it.

It logs to standard error; docs/operating.md explains every line.

It keeps agents' output in files below logs/ in the data directory, within bounds:
the oldest goes first, and logs marks what is gone.

With --api it serves other programs, which show a token (token create): on loopback
as it is, elsewhere with TLS 1.3, a certificate and its key.

A hub that has joined other hubs (spoke join) is their spoke, too, in one process:
what they order runs here, as far as the policy allows, and never on its own spokes.

` + settingsHelp,
		Example: `  spawnmesh --data-dir H hub run --link 127.0.0.1:7422
  spawnmesh --data-dir H hub run --link 0.0.0.0:7422 --advertise hub.example.org:7422
  spawnmesh --data-dir H hub run --api 127.0.0.1:7480`,
		RunE: func(c *cobra.Command, _ []string) error { return r.run(c.Context()) },
	}
	run.Flags().StringVar(&h.Listen, "link", "127.0.0.1:7422", "serve spokes on `ADDRESS`; port 0 picks a free one")
	run.Flags().StringVar(&h.Advertise, "advertise", "", "`HOST:PORT` that join tokens name, where it is another")
	run.Flags().StringVar(&h.Name, "name", defaultName(), "`NAME` that this hub gives itself (default: the name of this host)")
	run.Flags().Lookup("name").DefValue = ""
	run.Flags().StringVar(&h.Isolation, "min-isolation", "", "every agent is to be confined by `LEVEL`, or more: "+levelWords)
	run.Flags().Var(sizeVar(&h.Output.Agent, 64<<20), "output-per-agent", "keep `SIZE` of each agent's output, the newest")
	run.Flags().Var(sizeVar(&h.Output.Spoke, 1<<30), "output-per-spoke", "keep `SIZE` of the output of all agents of a spoke")
	run.Flags().Var(sizeVar(&h.Output.All, 64<<30), "output-total", "keep `SIZE` of the output of all agents; spokes share it equally")
	h.Output.Age = 30 * 24 * time.Hour
	run.Flags().Var((*days)(&h.Output.Age), "output-age", "keep output for so long after the last of it")
	run.Flags().Var(sizeVar(&h.MaxBlob, hub.DefaultMaxBlob), "max-input", "take inputs of orders of up to `SIZE` each")
	r.api.add(run.Flags())
	r.webhooks.add(run.Flags())
	r.spokeFlags(run.Flags())
	run.Flags().StringVar(&r.ready, "ready-file", "", "write the link's address to `FILE` once the hub serves")
	return r.runBy(run)
}

// isHub reports whether the instance in dir has run as a hub, which keeps its messages there.
func isHub(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "nats"))
	return err == nil
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

// checkLinkAddress says what is wrong with the link's address by itself; whether it is free is not looked at.
func checkLinkAddress(address string) error {
	if _, _, err := transport.ListenOn(address); err != nil {
		return misuse("serving spokes on --link %s: %v", address, err).Hinting("name it as HOST:PORT, as in --link 127.0.0.1:7422")
	}
	return nil
}

// checkLink says what is wrong with the link's address before a database is
// started for nothing. Who takes the address meanwhile is found out later.
func checkLink(ctx context.Context, address string) error {
	if err := checkLinkAddress(address); err != nil {
		return err
	}
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

// checkHub says what is wrong with a hub's settings.
func checkHub(h *hub.Hub) error {
	if h.Advertise != "" {
		if err := hub.CheckAddress(h.Advertise); err != nil {
			return err
		}
	}
	if h.Output.Agent <= 0 || h.Output.Spoke <= 0 || h.Output.All <= 0 || h.Output.Age <= 0 {
		return misuse("--output-per-agent, --output-per-spoke, --output-total and --output-age are above 0")
	}
	if h.MaxBlob <= 0 {
		return misuse("--max-input is above 0")
	}
	return checkLevel("--min-isolation", h.Isolation)
}
