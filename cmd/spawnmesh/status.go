package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store"
)

// An agentView is an agent as the hub knows it and, when it was asked, as its
// spoke answered; or, with Hub, as the host knows it where it runs.
type agentView struct {
	hub.AgentView
	Hub string `json:"hub,omitempty"` // who ordered it
	Dir string `json:"dir,omitempty"` // of its attempts
	// Session is what its runtime calls a conversation, and how that stands: of a host.
	Session      string            `json:"session,omitempty"`
	SessionState string            `json:"session_state,omitempty"`
	Asked        *api.TaskStanding `json:"asked,omitempty"`
	// Progress is what the agent has said of its progress last; nil = nothing, or it does not run.
	Progress  *api.TaskProgress   `json:"progress,omitempty"`
	LastError *commands.LastError `json:"last_error,omitempty"` // see [store.Mirror.Failure]
	// KillIncomplete are processes that do not end although they were killed.
	KillIncomplete []supervisor.Survivor `json:"kill_incomplete,omitempty"`

	RefusedReports []store.RefusedReport `json:"refused_reports,omitempty"` // by its hub
}

func (a *app) statusCommand() *cobra.Command {
	var ask bool
	c := &cobra.Command{
		Use: "status ID", Short: "Show how an agent stands", Args: cobra.ExactArgs(1),
		Long: `Show how an agent stands: what its spoke has said of it, receipt by receipt. In the
data directory of that spoke: what its host knows of it, also while no spoke runs.

ID is the short id as a list shows it, or four or more characters that no other
begins with; the whole id; or on a hub a title that no other agent has. With --ask
the spoke is asked now, and its signed answer is shown too.

Below are the last lines of its output, as far as it is here: ten, or with -o wide
all that a result has. logs ID shows all of it.`,
		RunE: func(c *cobra.Command, args []string) error { return a.status(c.Context(), args[0], ask) },
	}
	c.Flags().BoolVar(&ask, "ask", false, "ask the spoke now")
	return c
}

func (a *app) status(ctx context.Context, id string, ask bool) error {
	return a.withReader(ctx, func(ctx context.Context, c *control.Client) error { return a.statusOf(ctx, c, id, ask) })
}

// askSpoke asks the spoke of an agent how it stands, and says whom it waits for.
func (a *app) askSpoke(ctx context.Context, c *control.Client, id string) (*api.TaskStanding, error) {
	v, err := agentNamed(ctx, c, id)
	if err != nil {
		return nil, err
	}
	l := a.lasting("asking " + cmp.Or(v.Spoke, "the spoke") + ", at most 10s")
	defer l.done()
	return control.Read[*api.TaskStanding](c.API().AskTask(ctx, id))
}

// agentNamed asks for an agent as it is now.
func agentNamed(ctx context.Context, c *control.Client, id string) (agentView, error) {
	return control.Read[agentView](c.API().GetTask(ctx, id, nil))
}

func (a *app) statusOf(ctx context.Context, c *control.Client, id string, ask bool) error {
	var asked *api.TaskStanding
	if ask {
		var err error
		if asked, err = a.askSpoke(ctx, c, id); err != nil {
			return err
		}
	}
	v, err := control.Read[agentView](c.API().GetTask(ctx, id, &api.GetTaskParams{Receipts: true}))
	if err != nil {
		return err
	}
	v.Asked = asked
	if !a.forPeople() {
		return a.print(v, []any{v}, table{names: []string{v.Task}})
	}
	if v.Asked != nil {
		fmt.Fprintf(a.err, "%s says now: %s, attempt %d\n\n", v.Spoke, v.Asked.State, v.Asked.Attempt)
	}
	if err := a.printAgent(v, a.linesShown()); err != nil {
		return err
	}
	if err := a.printLastLines(ctx, c, v); err != nil || v.State.Terminal() {
		return err
	}
	if v.Hub != "" && v.State != commands.AwaitingInput {
		return a.statusOnHost(ctx, c, v)
	}
	said, err := a.reasonsOf(ctx, c, v.AgentView)
	if err != nil {
		return err
	}
	if !strings.Contains(said, a.self()+" ") {
		said += "; see: " + a.line("connections", "show", v.Spoke)
	}
	fmt.Fprintf(a.err, "\n%s\n", printable(said))
	return nil
}
