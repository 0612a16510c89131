package main

import (
	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/spoke"
)

func (a *app) spokeCommand() *cobra.Command {
	c := &cobra.Command{Use: "spoke", Short: "Run a spoke, join a hub, decide what may run here"}
	c.AddCommand(a.spokeRunner().command, a.spokeJoinCommand(), a.policyCommand(), a.profilesCommand(), a.installCommand("spoke"))
	return c
}

func (a *app) spokeRunner() *runner {
	r := &runner{a: a, spoke: &spoke.Spoke{}}
	run := &cobra.Command{
		Use: "run", Short: "Run a spoke in the foreground", Args: cobra.NoArgs,
		Long: `Run a spoke in the foreground until it is interrupted.

It then claims nothing more and waits --drain for running agents; a second interrupt
ends the wait. What still runs after that goes on without it, and is adopted when the
spoke runs again within its lease.

It logs to standard error; docs/operating.md explains every line.

` + settingsHelp,
		Example: "  spawnmesh --data-dir S spoke run --slots 4",
		RunE:    func(c *cobra.Command, _ []string) error { return r.run(c.Context()) },
	}
	r.spokeFlags(run.Flags())
	run.Flags().StringVar(&r.ready, "ready-file", "", "write this instance's id to `FILE` once the spoke works")
	return r.runBy(run)
}
