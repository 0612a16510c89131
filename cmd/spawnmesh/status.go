package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/store"
)

func (a *app) statusCommand() *cobra.Command {
	var ask bool
	c := &cobra.Command{
		Use: "status ID", Short: "Show how an agent stands", Args: cobra.ExactArgs(1),
		Long: `Show how an agent stands: what its spoke has said of it, receipt by receipt.

With --ask the spoke is asked now, and its signed answer is shown.`,
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			id := url.PathEscape(args[0])
			if ask {
				var s commands.TaskState
				if err := client.Do(c.Context(), "POST", "/v1/agents/"+id+"/ask", nil, &s); err != nil {
					return err
				}
				fmt.Fprintf(a.err, "the spoke says: %s, attempt %d\n", s.State, s.Attempt)
			}
			var v hub.AgentView
			if err := client.Do(c.Context(), "GET", "/v1/agents/"+id+"?receipts=true", nil, &v); err != nil {
				return err
			}
			return a.printAgent(v)
		},
	}
	c.Flags().BoolVar(&ask, "ask", false, "ask the spoke now")
	return c
}

// printAgent shows one agent in full.
func (a *app) printAgent(v hub.AgentView) error {
	if a.output != "table" && a.output != "wide" {
		return a.print(v, []any{v}, table{names: []string{v.Task}})
	}
	w := tabwriter.NewWriter(a.out, 0, 4, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, printable(value))
		}
	}
	line("id", v.Task)
	line("title", v.Title)
	line("spoke", v.Spoke)
	line("command", commandLine(v.Spec))
	line("state", sentence(v))
	if v.ExitCode != nil {
		line("exit code", strconv.Itoa(*v.ExitCode))
	}
	line("attempt", strconv.Itoa(v.Attempt))
	line("ordered", stamp(&v.CreatedAt, nil))
	line("accepted", stamp(v.AcceptedAt, &v.CreatedAt))
	line("started", stamp(v.StartedAt, &v.CreatedAt))
	line("ended", stamp(v.EndedAt, &v.CreatedAt))
	if v.AcceptedAt == nil && !v.State.Terminal() {
		line("expires", v.ExpiresAt.Local().Format(time.DateTime)+" (not started later than this)")
	}
	var r commands.Result
	if v.Result != nil && json.Unmarshal(v.Result, &r) == nil {
		for _, p := range r.Reaped {
			line("reaped", fmt.Sprintf("%d %s", p.Pid, p.Command))
		}
		for _, p := range r.Survivors {
			line("survives", fmt.Sprintf("%d %s", p.Pid, p.Command))
		}
	}
	for _, rc := range v.Receipts {
		line("receipt", fmt.Sprintf("%-15s seq %-6d %s %s", rc.Kind, rc.Seq, rc.At.Local().Format("15:04:05.000"), rc.Code))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, s := range []struct{ name, tail string }{{"stdout", r.Stdout.Tail}, {"stderr", r.Stderr.Tail}} {
		if s.tail != "" {
			fmt.Fprintf(a.out, "\n%s (its end)\n%s\n", s.name, printable(trimNewline(s.tail)))
		}
	}
	return nil
}

func trimNewline(s string) string {
	if n := len(s); n > 0 && s[n-1] == '\n' {
		return s[:n-1]
	}
	return s
}

// stamp is a time for people, with how long after the order it was.
func stamp(t, from *time.Time) string {
	if t == nil {
		return ""
	}
	text := t.Local().Format("2006-01-02 15:04:05.000")
	if from != nil {
		text += fmt.Sprintf("  +%s", t.Sub(*from).Round(time.Millisecond))
	}
	return text
}

func commandLine(spec json.RawMessage) string {
	var s commands.Spawn
	if json.Unmarshal(spec, &s) != nil || len(s.Argv) == 0 {
		return s.Runtime
	}
	text := ""
	for i, w := range s.Argv {
		if i > 0 {
			text += " "
		}
		if w == "" || strconv.Quote(w) != `"`+w+`"` || containsSpace(w) {
			w = strconv.Quote(w)
		}
		text += w
	}
	return text
}

func containsSpace(s string) bool {
	for _, c := range s {
		if c == ' ' {
			return true
		}
	}
	return false
}

func (a *app) agentsCommand() *cobra.Command {
	var spokeName string
	var open bool
	var limit int
	c := &cobra.Command{
		Use: "agents", Short: "List agents, newest first", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			q := url.Values{"spoke": {spokeName}, "limit": {strconv.Itoa(limit)}, "open": {strconv.FormatBool(open)}}
			var list []store.Mirror
			if err := client.Do(c.Context(), "GET", "/v1/agents?"+q.Encode(), nil, &list); err != nil {
				return err
			}
			return a.printAgents(list)
		},
	}
	c.Flags().StringVar(&spokeName, "spoke", "", "only those of one spoke")
	c.Flags().BoolVar(&open, "open", false, "only those that have not ended")
	c.Flags().IntVar(&limit, "limit", 50, "at most this many")
	return c
}

func (a *app) printAgents(list []store.Mirror) error {
	t := table{head: []string{"ID", "SPOKE", "STATE", "AGE", "COMMAND"}, wide: []string{"ATTEMPT", "BY", "FULL ID"}, empty: "no agents yet; spawn one: spawnmesh spawn --spoke NAME -- echo hi"}
	for _, m := range list {
		command := commandLine(m.Spec)
		if m.Title != "" {
			command = m.Title
		}
		if len(command) > 50 {
			command = command[:47] + "..."
		}
		state := string(m.State)
		if m.Reason != "" {
			state += " (" + string(m.Reason) + ")"
		}
		t.rows = append(t.rows, []string{shortID(m.Task), m.Spoke, state, ago(m.CreatedAt), command, strconv.Itoa(m.Attempt), m.CreatedBy, m.Task})
		t.names = append(t.names, m.Task)
	}
	return a.print(list, anys(list), t)
}

// shortID is enough of an id to name it: the first parts of a UUIDv7 are time,
// so a prefix must reach into what comes after.
func shortID(id string) string {
	if len(id) < 18 {
		return id
	}
	return id[:18]
}

func (a *app) killCommand() *cobra.Command {
	var reason string
	grace := days(hub.DefaultGrace)
	c := &cobra.Command{
		Use: "kill ID...", Short: "End agents and their whole process trees", Args: cobra.MinimumNArgs(1),
		Long: `End agents and their whole process trees: TERM, the grace, then KILL.

The order overtakes queues, is stored before this returns, and is obeyed by a
spoke that is offline when it is back. See what was reaped with: spawnmesh status ID`,
		RunE: func(c *cobra.Command, args []string) error {
			if reason == "" {
				return misuse(fmt.Errorf("a kill needs --reason \"why\"; it is recorded"))
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			var list []store.Mirror
			for _, id := range args {
				var m store.Mirror
				req := map[string]any{"reason": reason, "grace_ms": time.Duration(grace).Milliseconds()}
				if err := client.Do(c.Context(), "POST", "/v1/agents/"+url.PathEscape(id)+"/kill", req, &m); err != nil {
					return err
				}
				list = append(list, m)
				if a.output == "table" || a.output == "wide" {
					if m.State.Terminal() {
						fmt.Fprintf(a.err, "agent %s has ended already: %s\n", m.Task, m.State)
					} else {
						fmt.Fprintf(a.out, "kill of agent %s is ordered\n", m.Task)
					}
				}
			}
			if a.output == "table" || a.output == "wide" {
				return nil
			}
			return a.print(list, anys(list), table{names: args})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "why; it is recorded (required)")
	c.Flags().Var(&grace, "grace", "time between TERM and KILL")
	return c
}
