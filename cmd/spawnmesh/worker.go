package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/spoke/door"
)

func (a *app) workerCommand() *cobra.Command {
	w := &worker{a: a, patience: days(door.DefaultPatience)}
	c := &cobra.Command{
		Use: "worker", Short: "Talk to the spoke, from inside an agent",
		Long: `Talk to the spoke that runs this agent. These commands work inside an agent, whose
environment says where to ask: SPAWNMESH_SOCKET and SPAWNMESH_TOKEN_FILE.

While the spoke is away, as while it is restarted, they ask again for --patience. An
attempt that was replaced, or is being ended, may say nothing more: exit code 4.`,
		PersistentPreRunE: func(c *cobra.Command, args []string) error {
			if a.context != "" {
				return misuse("--context names a hub, and the worker commands ask the spoke that runs this agent").Hinting("leave out --context")
			}
			return c.Root().PersistentPreRunE(c, args)
		},
	}
	c.PersistentFlags().Var(&w.patience, "patience", "ask again for so long while the spoke is away")
	c.AddCommand(w.startCommand(), w.heartbeatCommand(), w.progressCommand(), w.checkpointCommand(), w.askCommand(), w.withdrawCommand(), w.doneCommand(), w.failCommand(), w.showCommand(), w.messageCommand(), w.acpCommand())
	return c
}

// worker is an agent that asks its spoke.
type worker struct {
	a        *app
	patience days
}

// client asks the spoke of this agent.
func (w *worker) client() (*door.Client, error) {
	c := &door.Client{Socket: w.a.getenv(spoke.SocketVariable), TokenFile: w.a.getenv(spoke.TokenVariable), Patience: time.Duration(w.patience)}
	if c.Socket == "" || c.TokenFile == "" {
		return nil, misuse("this is not inside an agent: %s and %s are not set", spoke.SocketVariable, spoke.TokenVariable).
			Hinting("these commands are for a program that a spoke runs")
	}
	return c, nil
}

func (w *worker) ask(ctx context.Context, method, path string, in, out any) error {
	c, err := w.client()
	if err == nil {
		err = c.Do(ctx, method, path, in, out)
	}
	return err
}

// say tells the spoke something that has no answer but its time.
func (w *worker) say(ctx context.Context, path string, in any) error {
	var noted door.Noted
	if err := w.ask(ctx, http.MethodPost, path, in, &noted); err != nil || w.a.forPeople() {
		return err
	}
	return w.a.print(noted, []any{noted}, table{})
}

func (w *worker) startCommand() *cobra.Command {
	return &cobra.Command{
		Use: "start", Short: "Say that the agent has begun, and show its attempt", Args: cobra.NoArgs,
		Long: `Say that the agent has begun, and show its attempt, as show does. The spoke knows by
itself that its process runs; this notes that the agent can talk to it.`,
		RunE: func(c *cobra.Command, _ []string) error {
			var noted door.Noted
			if err := w.ask(c.Context(), http.MethodPost, "/v1/heartbeat", struct{}{}, &noted); err != nil {
				return err
			}
			return w.show(c.Context())
		},
	}
}

func (w *worker) heartbeatCommand() *cobra.Command {
	return &cobra.Command{
		Use: "heartbeat", Short: "Note that the agent is alive", Args: cobra.NoArgs,
		Long: `Note that the agent is alive. Nothing depends on it: the supervisor of the agent
renews its lease.`,
		RunE: func(c *cobra.Command, _ []string) error { return w.say(c.Context(), "/v1/heartbeat", struct{}{}) },
	}
}

func (w *worker) progressCommand() *cobra.Command {
	var p commands.Progress
	var current, total int64
	c := &cobra.Command{
		Use: "progress", Short: "Say how far the agent has come", Args: cobra.NoArgs,
		Long: `Say how far the agent has come. The last word is shown with the agent here and, with
the next heartbeat, at its hub; the newest 100 of each attempt are kept.`,
		Example: "  spawnmesh worker progress --current 3 --total 12 --unit files --step 'formatting'",
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("current") {
				p.Current = &current
			}
			if c.Flags().Changed("total") {
				p.Total = &total
			}
			if err := p.Validate(); err != nil {
				return err
			}
			return w.say(c.Context(), "/v1/progress", p)
		},
	}
	c.Flags().Int64Var(&current, "current", 0, "it has done `N`")
	c.Flags().Int64Var(&total, "total", 0, "of `N`")
	c.Flags().StringVar(&p.Unit, "unit", "", "both numbers count `WHAT`")
	c.Flags().StringVar(&p.Step, "step", "", "what it does now, in a `TEXT` of one line")
	return c
}

func (w *worker) checkpointCommand() *cobra.Command {
	var session string
	c := &cobra.Command{
		Use: "checkpoint [FILE|-]", Short: "Keep something for the next attempt", Args: cobra.MaximumNArgs(1),
		Long: `Keep what is in FILE, or on standard input, for the next attempt of this agent: up to
1 MiB, in place of what was kept before. The next attempt finds it in the file that
SPAWNMESH_CHECKPOINT names, and the id of --session in SPAWNMESH_SESSION.`,
		Example: "  spawnmesh worker checkpoint state.json --session 4f1c",
		RunE: func(c *cobra.Command, args []string) error {
			named := c.Flags().Changed("session")
			if len(args) == 0 && !named {
				return misuse("nothing is to be kept").Hinting("name a file, - for standard input, or give --session")
			}
			if len(args) == 1 {
				if err := w.keep(c.Context(), args[0]); err != nil {
					return err
				}
			}
			if !named {
				return nil
			}
			return w.ask(c.Context(), http.MethodPut, "/v1/session", door.Session{ID: session}, nil)
		},
	}
	c.Flags().StringVar(&session, "session", "", "keep the `ID` of a session of the agent's runtime")
	return c
}

// keep sends what is in a file as it is.
func (w *worker) keep(ctx context.Context, file string) error {
	kept, err := w.a.readNamed(ctx, source{what: "the checkpoint", path: file, input: file == "-", most: door.MaxCheckpoint, larger: "keep less, and the rest elsewhere"})
	if err != nil {
		return err
	}
	c, err := w.client()
	if err == nil {
		err = c.Send(ctx, http.MethodPut, "/v1/checkpoint", []byte(kept), nil)
	}
	return err
}

func (w *worker) showCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show", Short: "Show the attempt that this agent is", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return w.show(c.Context()) },
	}
}

func (w *worker) show(ctx context.Context) error {
	var v door.Attempt
	if err := w.ask(ctx, http.MethodGet, "/v1/attempt", nil, &v); err != nil {
		return err
	}
	if !w.a.forPeople() {
		return w.a.print(v, []any{v}, table{names: []string{v.Task}})
	}
	var list pairs
	list.add("agent", fmt.Sprintf("%s (%s)", v.ShortID, v.Task))
	list.add("attempt", fmt.Sprint(v.Attempt))
	if v.Deadline != nil {
		list.add("deadline", v.Deadline.Local().Format(time.DateTime))
	}
	for _, q := range v.Questions {
		list.add("question", fmt.Sprintf("%s, %s: %s", q.Key, q.State, q.Text))
		list.add("answer", q.Answer)
	}
	return w.a.align(list, 0)
}
