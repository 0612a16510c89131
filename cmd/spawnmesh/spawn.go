package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/local"
	"github.com/spawnmesh/spawnmesh/hub"
)

// spawnFlags are what the operator says about one spawn.
type spawnFlags struct {
	req          hub.SpawnRequest
	env          []string
	timeout      days
	expires      days
	wait, follow bool
}

func (a *app) spawnCommand() *cobra.Command {
	var f spawnFlags
	c := &cobra.Command{
		Use: "spawn [flags] -- CMD [ARG...]", Short: "Spawn an agent on a spoke",
		Long: `Spawn an agent on a spoke.

When the id is printed the order is stored and cannot be lost: it reaches the
spoke when the link is up, and its end comes back. The spoke's own policy decides
whether it runs.`,
		Example: `  spawnmesh spawn --spoke attic -- go test ./...
  spawnmesh spawn --any --capability gpu --timeout 2h --follow -- ./train.sh
  spawnmesh spawn --spoke attic --wait -o json -- sh -c 'echo hi; exit 3'`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error { return a.spawn(c.Context(), f, args) },
	}
	s, fl := &f.req.Spawn, c.Flags()
	fl.SetInterspersed(false)
	fl.StringVar(&f.req.Spoke, "spoke", "", "name of the spoke")
	fl.BoolVar(&f.req.Any, "any", false, "let the hub choose a spoke that can run it")
	fl.StringVar(&s.Title, "title", "", "a title for people")
	fl.StringVar(&s.Runtime, "runtime", commands.RuntimeExec, "exec (a program) or noop (nothing: tries the path)")
	fl.StringVar(&s.Dir, "dir", "", "directory on the spoke (default: a fresh one)")
	fl.StringArrayVar(&f.env, "env", nil, "NAME=VALUE for the agent's environment (repeatable)")
	fl.StringArrayVar(&s.Capabilities, "capability", nil, "capability the spoke must have (repeatable)")
	fl.IntVar(&s.Priority, "priority", 0, "-100 to 100, higher is sooner")
	fl.IntVar(&s.MaxRetries, "max-retries", 0, "how often a failed run is tried again")
	fl.Var(&f.timeout, "timeout", "end the agent after this long (default: the spoke's limit)")
	fl.Var(&f.expires, "expires-in", "never start it later than this from now (default 24h, at most 7d)")
	fl.StringVar(&f.req.IdempotencyKey, "idempotency-key", "", "a second spawn with the same key is the same spawn")
	fl.StringVar(&f.req.ID, "id", "", "the agent's id, a UUID of version 7 or 4 (default: a new one)")
	fl.BoolVar(&f.wait, "wait", false, "wait for the result; the exit code tells it")
	fl.BoolVar(&f.follow, "follow", false, "show the agent's output, and wait for the result")
	return c
}

func (a *app) spawn(ctx context.Context, f spawnFlags, args []string) error {
	f.req.Spawn.Argv = args
	f.req.Spawn.TimeoutMS = time.Duration(f.timeout).Milliseconds()
	f.req.ExpiresInMS = time.Duration(f.expires).Milliseconds()
	for _, e := range f.env {
		name, value, ok := strings.Cut(e, "=")
		if !ok {
			return misuse(fmt.Errorf("--env wants NAME=VALUE; %q has no =", name))
		}
		f.req.Spawn.Env = append(f.req.Spawn.Env, commands.EnvVar{Name: name, Value: value})
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	var got hub.SpawnAnswer
	if err := c.Do(ctx, "POST", "/v1/agents", f.req, &got); err != nil {
		return err
	}
	if f.follow {
		fmt.Fprintf(a.err, "agent %s on %s\n", got.ID, got.Spoke)
		return a.followAgent(ctx, c, got.ID)
	}
	if f.wait {
		return a.waitAgent(ctx, c, got.ID)
	}
	if a.output == "table" || a.output == "wide" {
		fmt.Fprintln(a.out, got.ID)
		if got.Existing {
			fmt.Fprintln(a.err, "this spawn was ordered before; nothing new was ordered")
		}
		return nil
	}
	return a.print(got, anys([]hub.SpawnAnswer{got}), table{names: []string{got.ID}})
}

// await asks until the agent has ended. An interrupt detaches: the agent goes on.
func (a *app) await(ctx context.Context, c *local.Client, id string) (hub.AgentView, error) {
	var v hub.AgentView
	for {
		err := c.Do(ctx, "GET", "/v1/agents/"+url.PathEscape(id)+"?wait=30s", nil, &v)
		if ctx.Err() != nil {
			fmt.Fprintf(a.err, "detached; agent %s goes on. See: spawnmesh status %s\n", id, id)
			return v, exitCode(exitInterrupted)
		}
		if err != nil || v.State.Terminal() {
			return v, err
		}
	}
}

func (a *app) waitAgent(ctx context.Context, c *local.Client, id string) error {
	v, err := a.await(ctx, c, id)
	if err != nil {
		return err
	}
	if err := a.printAgent(v); err != nil {
		return err
	}
	return resultCode(v)
}

// followAgent shows the output as it comes, then says how the agent ended.
func (a *app) followAgent(ctx context.Context, c *local.Client, id string) error {
	if err := a.streamLogs(ctx, c, id, 0, true); err != nil && ctx.Err() == nil {
		return err
	}
	v, err := a.await(ctx, c, id)
	if err != nil {
		return err
	}
	if a.output == "json" || a.output == "ndjson" {
		if err := a.printAgent(v); err != nil {
			return err
		}
		return resultCode(v)
	}
	fmt.Fprintf(a.err, "agent %s %s\n", id, sentence(v))
	return resultCode(v)
}

// resultCode is the exit code that tells how an agent ended; nil for success.
func resultCode(v hub.AgentView) error {
	switch v.State {
	case commands.Completed:
		return nil
	case commands.Failed:
		return exitCode(exitFailed)
	case commands.Cancelled:
		return exitCode(exitCancelled)
	case commands.AwaitingInput:
		return exitCode(exitAwaiting)
	case commands.Expired:
		if v.Reason == commands.DeadlineElapsed {
			return exitCode(exitTimedOut)
		}
		return exitCode(exitNoSpoke)
	}
	switch v.Reason {
	case commands.PolicyDenied, commands.GrantDenied:
		return exitCode(exitRefused)
	}
	return exitCode(exitNoSpoke)
}

// sentence says in a few words how an agent stands.
func sentence(v hub.AgentView) string {
	var refusal commands.RefusedBody
	if v.Refusal != nil && json.Unmarshal(v.Refusal, &refusal) == nil {
		return fmt.Sprintf("was refused by %s: %s (%s)", v.Spoke, refusal.Why, refusal.Code)
	}
	var r commands.Result
	if v.Result != nil && json.Unmarshal(v.Result, &r) == nil {
		if r.Summary == string(v.State) {
			return r.Summary
		}
		return string(v.State) + ": " + r.Summary
	}
	if v.Reason != "" {
		return fmt.Sprintf("%s (%s)", v.State, v.Reason)
	}
	return string(v.State)
}

func (a *app) logsCommand() *cobra.Command {
	var follow bool
	var since int64
	c := &cobra.Command{
		Use: "logs ID", Short: "Show an agent's output", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			return a.streamLogs(c.Context(), client, args[0], since, follow)
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the agent has ended")
	c.Flags().Int64Var(&since, "since-seq", 0, "only what arrived after this sequence number")
	return c
}

// streamLogs writes an agent's output to where it belongs: standard output and
// standard error, as it was written; as JSON with its sequence numbers.
func (a *app) streamLogs(ctx context.Context, c *local.Client, id string, since int64, follow bool) error {
	path := fmt.Sprintf("/v1/agents/%s/logs?after=%d&follow=%t", url.PathEscape(id), since, follow)
	err := c.Stream(ctx, path, func(raw json.RawMessage) error {
		var p logPiece
		if err := json.Unmarshal(raw, &p); err != nil {
			return fmt.Errorf("reading a piece of log: %w", err)
		}
		if a.output == "json" || a.output == "ndjson" {
			return json.NewEncoder(a.out).Encode(raw)
		}
		to := a.out
		if p.Stream == "stderr" {
			to = a.err
		}
		data := string(p.Data)
		if terminal(to) {
			data = printable(data)
		}
		_, err := fmt.Fprint(to, data)
		return err
	})
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return exitCode(exitInterrupted)
	}
	return err
}

type logPiece struct {
	Seq    int64  `json:"seq"`
	Stream string `json:"stream"`
	Data   []byte `json:"data"`
}
