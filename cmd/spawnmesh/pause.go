package main

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

func (a *app) pauseCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "pause ID...", Short: "Pause agents where they are", Args: cobra.MinimumNArgs(1),
		Long: `Pause agents. What waits is not started. What runs is stopped where it is, with its
whole process tree, and keeps its memory, its lease and its slot; no time of its
limits passes. status says paused once that is done. See also: spawnmesh resume

The order is stored and in the audit before this returns, and obeyed when the spoke
is back where that cannot be reached. Of a pause and a resume the newer one counts,
in whatever order they arrive. Where the spoke refuses it, status and why say so.

A paused agent that is killed or cancelled ends as any other. One that is lost while
it is paused, as in a restart of its host, stays paused: resume starts it anew.

A command that talks to others may find its connections closed when it goes on.`,
		Example: "  spawnmesh pause k7f3m2qp --reason 'the disk is full'",
	}
	return a.pausing(c, "pause", func(c api.ClientInterface) pauser { return c.PauseTask })
}

func (a *app) resumeCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "resume ID...", Short: "Let agents that are paused go on", Args: cobra.MinimumNArgs(1),
		Long: `Let agents that are paused go on: those that were stopped where they were, those
that had not started by their turn. See: spawnmesh pause --help`,
		Example: "  spawnmesh resume k7f3m2qp",
	}
	return a.pausing(c, "resume", func(c api.ClientInterface) pauser { return c.ResumeTask })
}

// A pauser asks for a pause, or for its end.
type pauser func(ctx context.Context, task string, body api.PauseRequest, more ...api.RequestEditorFn) (*http.Response, error)

func (a *app) pausing(c *cobra.Command, word string, ask func(api.ClientInterface) pauser) *cobra.Command {
	var reason string
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := commands.CheckReason(reason); err != nil {
			return err
		}
		return a.endEach(c.Context(), args, word, func(client *control.Client, id string) (hub.Killed, error) {
			return control.Read[hub.Killed](ask(client.API())(c.Context(), id, api.PauseRequest{Reason: reason}))
		})
	}
	c.Flags().StringVar(&reason, "reason", "", "record `WHY`")
	return c
}
