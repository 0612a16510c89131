package main

import (
	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/demo"
)

func (a *app) demoCommand() *cobra.Command {
	var once bool
	c := &cobra.Command{
		Use: "demo", Short: "A tour: a hub and two spokes on this machine, for real", Args: cobra.NoArgs,
		Long: `Run a hub and two spokes on this machine, each with its own Postgres,
join them with real tokens, and spawn, follow, refuse, kill and recover real
processes. Everything is in a temporary directory and ends with the demo.

It stays up until interrupted, and ends with exit code 0; with --once it ends after
the tour, with exit code 0 only if every step held.`,
		RunE: func(c *cobra.Command, _ []string) error {
			tour := demo.Tour{Out: a.out, Once: once, Quote: commands.ShellLine, Show: a.printMirrors}
			return tour.Run(c.Context())
		},
	}
	c.Flags().BoolVar(&once, "once", false, "end after the tour")
	return c
}
