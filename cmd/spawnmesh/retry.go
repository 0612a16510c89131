package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

func (a *app) retryCommand() *cobra.Command {
	return &cobra.Command{
		Use: "retry ID", Short: "Order anew what an agent that has failed was to do", Args: cobra.ExactArgs(1),
		Long: `Order anew what an agent that ended without success was ordered to do: the same
command, options and labels, for the same spoke, or for any where --any was given.

The new agent has an id of its own, which is printed; its signed order names the
old one. What has ended stays as it is: its end is signed, and a spoke that was told
to kill an id never starts it. Typed again, the command prints the same new id.

An order with variables, files or standard input is not retried: their values were
encrypted to the spoke, and the hub does not keep them. A chain has at most 10.`,
		Example: "  spawnmesh retry k7f3m2qp",
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			got, err := control.Read[hub.SpawnAnswer](client.API().RetryTask(c.Context(), args[0]))
			if err != nil {
				return err
			}
			a.did("agent %s was ordered on %s; see: %s", got.ShortID, got.Spoke, a.line("status", got.ShortID))
			if a.forPeople() {
				fmt.Fprintf(a.out, "%s\n", got.ShortID)
				return nil
			}
			return a.print(got, anys([]hub.SpawnAnswer{got}), table{names: []string{got.ID}})
		},
	}
}
