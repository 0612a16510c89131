package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

func (a *app) cancelCommand() *cobra.Command {
	var reason string
	var graceful bool
	wait := days(hub.DefaultGrace)
	c := &cobra.Command{
		Use: "cancel ID...", Short: "Cancel agents: ask them to end, then end them", Args: cobra.MinimumNArgs(1),
		Long: `Cancel agents. What waits is cancelled at once. What runs is asked to end (TERM),
has --wait-for to do so, and is ended then with its whole process tree (KILL).

An agent that ends with exit code 0 meanwhile has completed; else it is cancelled.
The reason is cancel_requested either way. With --graceful what runs may finish,
however long it takes, and nothing runs after it.

The order is stored and in the audit before this returns, also where the spoke
cannot be reached; status says whether the spoke has taken it. An agent that has
ended stays as it is: that is no error.`,
		Example: "  spawnmesh cancel k7f3m2qp --reason 'no longer needed'\n  spawnmesh cancel k7f3m2qp --reason 'new version' --graceful",
		RunE: func(c *cobra.Command, args []string) error {
			terms := commands.Kill{Reason: reason, GraceMS: time.Duration(wait).Milliseconds(), Cancel: commands.CancelNow}
			if reason == "" {
				return misuse("a cancel needs a reason").Hinting("add --reason \"why\"; it is recorded")
			}
			if graceful && c.Flags().Changed("wait-for") {
				return misuse("--graceful lets what runs finish, however long it takes, and --wait-for ends it").Hinting("give one or the other")
			}
			if graceful {
				terms.GraceMS = 0
			}
			if err := terms.ValidateTerms(); err != nil {
				return err
			}
			ask := api.CancelRequest{Reason: reason, WaitMS: terms.GraceMS, Graceful: graceful}
			return a.endEach(c.Context(), args, "cancel", func(client *control.Client, id string) (hub.Killed, error) {
				return control.Read[hub.Killed](client.API().CancelTask(c.Context(), id, ask))
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "record `WHY` (required)")
	c.Flags().Var(&wait, "wait-for", "time between TERM and KILL, at most 10m")
	c.Flags().BoolVar(&graceful, "graceful", false, "let what runs finish")
	return c
}
