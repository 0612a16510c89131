package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

// patience is how long a waiting command bears with a hub that is away: it may
// be starting again, and what is waited for goes on meanwhile.
const patience = time.Minute

// A watch is a command that waits for an agent.
type watch struct {
	a     *app
	c     *control.Client
	id    string
	known bool      // the hub answered about it before
	away  time.Time // since when the hub does not answer; zero when it does
}

// await asks until the agent has ended. An interrupt detaches: the agent goes on.
func (a *app) await(ctx context.Context, c *control.Client, id string) (hub.AgentView, error) {
	w := &watch{a: a, c: c, id: id, known: true}
	for {
		v, err := w.look(ctx, 30*time.Second)
		if err == nil && v.State.Terminal() {
			return v, nil
		}
		if err := w.bear(ctx, err); err != nil {
			return v, err
		}
	}
}

// look returns the agent once it has ended, or after limit as it is.
func (w *watch) look(ctx context.Context, limit time.Duration) (v hub.AgentView, err error) {
	err = w.c.Do(ctx, "GET", "/api/v1/tasks/"+url.PathEscape(w.id)+"?wait="+limit.String(), nil, &v)
	w.known = w.known || err == nil
	return v, err
}

// bear returns nil when it makes sense to ask again after err, after a pause
// where the hub is away.
func (w *watch) bear(ctx context.Context, err error) error {
	code := commands.CodeOf(err)
	switch {
	case ctx.Err() != nil:
		return commands.Refuse(control.Interrupted, "detached; agent %s goes on", w.id).Hinting("see: %s status %s", w.a.self(), w.id)
	case err == nil:
		w.away = time.Time{}
		return nil
	case !w.known || code != commands.Unreachable && code != commands.StoreDown:
		return err
	case w.away.IsZero():
		w.away = time.Now()
		fmt.Fprintf(w.a.err, "the hub does not answer; agent %s goes on, and this waits for %s\n", w.id, commands.Lasting(patience))
	case time.Since(w.away) > patience:
		return commands.Refuse(code, "the hub did not answer for %s; agent %s goes on", commands.Lasting(patience), w.id).
			Hinting("when the hub is back: %s status %s", w.a.self(), w.id)
	}
	select {
	case <-ctx.Done():
	case <-time.After(200 * time.Millisecond):
	}
	return nil
}

func (a *app) waitAgent(ctx context.Context, c *control.Client, id string) error {
	v, err := a.await(ctx, c, id)
	if err != nil {
		return err
	}
	if err := a.printAgent(agentView{AgentView: v}); err != nil {
		return err
	}
	return resultCode(v)
}

// followAgent shows the output as it comes, then says how the agent ended: to a
// program in one more line of JSON.
func (a *app) followAgent(ctx context.Context, c *control.Client, id string) error {
	v, err := a.followLogs(ctx, c, id, 0)
	if err != nil {
		return err
	}
	if a.wantsJSON() {
		if err := a.printLine(v); err != nil {
			return err
		}
		return resultCode(v)
	}
	fmt.Fprintf(a.err, "agent %s %s\n", id, v.Sentence())
	return resultCode(v)
}

// followLogs shows what the agent writes until it has ended and all of it was
// shown. A hub that restarts meanwhile is asked for the rest.
func (a *app) followLogs(ctx context.Context, c *control.Client, id string, after int64) (hub.AgentView, error) {
	w := &watch{a: a, c: c, id: id}
	for {
		// Asked first: when it has ended now, the stream that follows is all.
		v, err := w.look(ctx, time.Millisecond)
		if err == nil {
			after, err = a.streamLogs(ctx, c, id, after, true)
		}
		if err == nil && v.State.Terminal() {
			return v, nil
		}
		if err := w.bear(ctx, err); err != nil {
			return v, err
		}
	}
}

func (a *app) logsCommand() *cobra.Command {
	var follow bool
	var since int64
	c := &cobra.Command{
		Use: "logs ID", Short: "Show an agent's output", Args: cobra.ExactArgs(1),
		Long: `Show an agent's output: what it wrote to standard output and standard error goes to
the same here.

What the bounds of the spoke or of the hub have dropped is marked on standard error.
With -f, a line there says when the spoke is not linked, and until when its output
is here. While an agent runs, its output is shown up to half of the bound of its
spoke (limits.output of the policy); the rest that was kept comes when it ends.

With -o json each piece has its sequence number, for --since-seq, and its bytes in
base64, or "dropped" where bytes are missing; a program that follows reads one piece
per line, and "waiting" while the spoke is not linked.

In a spoke's data directory the output comes from the files of the attempts on this
host, first attempt first, also while no spoke runs.`,
		RunE: func(c *cobra.Command, args []string) error { return a.showLogs(c.Context(), args[0], since, follow) },
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the agent has ended")
	c.Flags().Int64Var(&since, "since-seq", 0, "only what arrived after the piece `N`")
	return c
}

// logs shows what has arrived up to now.
func (a *app) logs(ctx context.Context, c *control.Client, id string, since int64) error {
	if a.output != "json" {
		_, err := a.streamLogs(ctx, c, id, since, false)
		return err
	}
	pieces := []json.RawMessage{}
	err := c.Follow(ctx, logsPath(id, since, false), func(raw json.RawMessage) error {
		pieces = append(pieces, raw)
		return nil
	})
	if err != nil {
		return err
	}
	return a.printJSON(pieces)
}

func logsPath(id string, after int64, follow bool) string {
	return fmt.Sprintf("/api/v1/tasks/%s/logs?after=%d&follow=%t", url.PathEscape(id), after, follow)
}

// streamLogs writes an agent's output to where it belongs: standard output and
// standard error, as it was written; for a program as JSON. It returns the
// sequence number that it got to.
func (a *app) streamLogs(ctx context.Context, c *control.Client, id string, after int64, follow bool) (int64, error) {
	err := c.Follow(ctx, logsPath(id, after, follow), func(raw json.RawMessage) error {
		var p hub.LogLine
		if err := json.Unmarshal(raw, &p); err != nil {
			return fmt.Errorf("reading a piece of log: %w", err)
		}
		after = max(after, p.Seq)
		if a.wantsJSON() {
			return a.printLine(raw)
		}
		if mark := markOf(p); mark != "" {
			_, err := fmt.Fprintln(a.err, printable(mark))
			return err
		}
		return a.printOutput(p.Stream, p.Data)
	})
	return after, err
}

// printOutput writes output to where the agent wrote it.
func (a *app) printOutput(stream string, data []byte) error {
	to, text := a.out, string(data)
	if stream == "stderr" {
		to = a.err
	}
	if terminal(to) {
		text = printable(text)
	}
	_, err := fmt.Fprint(to, text)
	return err
}

// markOf says what a line of a log is that is not output.
func markOf(l hub.LogLine) string {
	d := l.Dropped
	switch {
	case l.Waiting != nil && l.Waiting.Until == nil:
		return fmt.Sprintf("%s is not linked and no output is here yet; this waits for it", l.Waiting.Spoke)
	case l.Waiting != nil:
		return fmt.Sprintf("%s is not linked; its output until %s is here, and this waits for the rest", l.Waiting.Spoke, l.Waiting.Until.Local().Format(time.DateTime))
	case l.Missing != nil:
		return markOfMissing(*l.Missing)
	case d == nil:
		return ""
	case d.Cut && d.By == "hub":
		return "[output that the hub had cannot be read]"
	case d.Cut:
		return fmt.Sprintf("[%s of attempt %d ends at byte %d: the spoke has lost the rest, if there was any]", l.Stream, l.Attempt, l.Offset)
	}
	return fmt.Sprintf("[%s of attempt %d: %s]", l.Stream, l.Attempt, droppedBy(d.By, d.Bytes, d.From))
}

func droppedBy(who string, bytes, from int64) string {
	return fmt.Sprintf("%d bytes from byte %d on were dropped by the %s", bytes, from, who)
}

// markOfMissing says what of a stream has not arrived, and what the spoke says in the
// result about what it did not keep.
func markOfMissing(m hub.Missing) string {
	var list []string
	switch {
	case m.Never && m.Bytes > 0:
		list = append(list, fmt.Sprintf("%d bytes from byte %d on did not arrive before the connection with %s ended", m.Bytes, m.From, m.Spoke))
	case m.Bytes > 0:
		list = append(list, fmt.Sprintf("%d bytes from byte %d on are not here yet; logs -f waits for them", m.Bytes, m.From))
	case !m.Never:
		list = append(list, "its end is not here yet; logs -f waits for it")
	case len(m.Gaps) == 0 && !m.Cut:
		list = append(list, fmt.Sprintf("what came after byte %d did not arrive before the connection with %s ended", m.From, m.Spoke))
	}
	for _, g := range m.Gaps {
		list = append(list, droppedBy("spoke", g.To-g.From, g.From))
	}
	if m.Cut {
		list = append(list, "the spoke has lost the rest, if there was any")
	}
	return fmt.Sprintf("[%s of attempt %d: %s]", m.Stream, m.Attempt, strings.Join(list, "; "))
}
