package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/hub/output"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

func (a *app) logsCommand() *cobra.Command {
	var f logFlags
	c := &cobra.Command{
		Use: "logs ID", Short: "Show an agent's output", Args: cobra.ExactArgs(1),
		Long: `Show an agent's output: what it wrote to standard output and standard error goes to
the same here.

Where an agent was tried again, standard error says which attempt begins.

What the bounds of the spoke or of the hub have dropped is marked on standard error.
With -f, a line there says when the spoke is not linked, and until when its output
is here. While an agent runs, its output is shown up to half of the bound of its
spoke (limits.output of the policy); the rest that was kept comes when it ends.
A hub that stops meanwhile is waited for, up to a minute, and asked for the rest.

With -o json each piece has its sequence number, for --since-seq, and its bytes in
base64, or "dropped" where bytes are missing; a program that follows reads one piece
per line, and "waiting" while the spoke is not linked.

In a spoke's data directory the output comes from the files of the attempts on this
host, first attempt first, also while no spoke runs.`,
		RunE: func(c *cobra.Command, args []string) error {
			if f.attempt < 0 || f.seq < 0 || f.last < 0 && c.Flags().Changed("lines") {
				return misuse("-n, --attempt and --since-seq take a number from 0")
			}
			return a.showLogs(c.Context(), args[0], f)
		},
	}
	fl := c.Flags()
	fl.BoolVarP(&f.follow, "follow", "f", false, "go on until the agent has ended")
	fl.IntVarP(&f.last, "lines", "n", -1, "of what is there only the last `N` lines (default: all)")
	fl.Lookup("lines").DefValue = "0"
	fl.IntVar(&f.attempt, "attempt", 0, "only the attempt `N` (default: all)")
	fl.Var(&f.since, "since", "only what arrived in the last DURATION, or since TIME")
	fl.Int64Var(&f.seq, "since-seq", 0, "only what arrived after the piece `N`")
	return c
}

// A logReader shows an agent's output, each byte once: where a stream of it was cut off, it goes
// on behind the last piece.
type logReader struct {
	watch
	flags  logFlags
	view   logView
	after  int64      // number of the last piece
	had    output.Had // which a hub that is asked again does not know
	gather bool       // lines go to lines, to be printed together
	lines  []json.RawMessage
}

// logs shows what has arrived up to now.
func (a *app) logs(ctx context.Context, c *control.Client, id string, f logFlags) error {
	r := a.newLogReader(c, id, f)
	r.gather, r.lines = a.output == "json", []json.RawMessage{}
	if err := r.whatIsThere(ctx); err != nil {
		return err
	}
	if !r.gather {
		return r.sayNeverStarted(ctx)
	}
	return a.printJSON(r.lines)
}

// sayNeverStarted says to people why nothing was shown of an agent that has ended before it began.
func (r *logReader) sayNeverStarted(ctx context.Context) error {
	if r.after > r.flags.seq || !r.a.forPeople() {
		return nil
	}
	v, err := r.look(ctx, 0)
	if err == nil && v.State.Terminal() && v.StartedAt == nil {
		fmt.Fprintln(r.a.err, printable(whyNoOutput(v)))
	}
	return err
}

// whyNoOutput says why there is no output of an agent that has ended and of which no start was told.
func whyNoOutput(v hub.AgentView) string {
	id := commands.ShortID(v.Task)
	switch r := resultOf(v); r.Outcome {
	case "", commands.CouldNotStart, commands.Released:
		return fmt.Sprintf("agent %s never started, so it wrote nothing: %s", id, v.Sentence())
	default: // its shim may have begun it
		return fmt.Sprintf("agent %s ended while attempt %d was starting; no output of it is here: %s", id, r.Attempt, v.Sentence())
	}
}

func (a *app) newLogReader(c *control.Client, id string, f logFlags) *logReader {
	return &logReader{watch: watch{a: a, c: c, id: id}, flags: f, view: logView{a: a, last: f.last}, after: f.seq}
}

// whatIsThere shows what has arrived, also over restarts of the hub.
func (r *logReader) whatIsThere(ctx context.Context) error {
	r.reads = true
	for {
		err := r.stream(ctx, false)
		if err == nil {
			return r.view.flush()
		}
		if err := r.bear(ctx, err); err != nil {
			return err
		}
	}
}

// followLogs shows what the agent writes until it has ended and all of it was
// shown. A hub that restarts meanwhile is asked for the rest.
func (a *app) followLogs(ctx context.Context, c *control.Client, id string, f logFlags) (hub.AgentView, error) {
	r := a.newLogReader(c, id, f)
	if f.last >= 0 {
		if err := r.whatIsThere(ctx); err != nil {
			return hub.AgentView{}, err
		}
	}
	for {
		// Asked first: when it has ended now, the stream that follows is all.
		v, err := r.look(ctx, 0)
		if err == nil {
			r.reads = v.State.Terminal()
			err = r.stream(ctx, true)
		}
		if err == nil && v.State.Terminal() {
			return v, nil
		}
		if err := r.bear(ctx, err); err != nil {
			return v, err
		}
	}
}

// stream shows what comes in one answer of the hub. One that brought something, or lasted, came
// from a hub that was there.
func (r *logReader) stream(ctx context.Context, follow bool) error {
	began, after := time.Now(), r.after
	resp, err := r.c.API().GetTaskLogs(ctx, r.id, &api.GetTaskLogsParams{After: after, Follow: follow})
	err = r.c.Stream(resp, err, r.line)
	if r.after > after || time.Since(began) > patience {
		r.away = time.Time{}
	}
	return err
}

// line takes one line, and shows of it what was not shown before.
func (r *logReader) line(raw json.RawMessage) error {
	var l hub.LogLine
	if err := json.Unmarshal(raw, &l); err != nil {
		return fmt.Errorf("reading a piece of log: %w", err)
	}
	r.known = true
	r.after = max(r.after, l.Seq)
	p, lacks := r.had.Take(l.Piece)
	if !lacks {
		return nil
	}
	if l.Dropped != p.Dropped { // it may name less now
		var err error
		if raw, err = json.Marshal(p); err != nil {
			return err
		}
	}
	l.Piece = p
	return r.show(l, raw)
}

// show writes a line to where it belongs: output as it was written, to standard output or
// standard error; for a program as JSON.
func (r *logReader) show(l hub.LogLine, raw json.RawMessage) error {
	switch {
	case r.flags.hides(l):
		return nil
	case r.gather:
		r.lines = append(r.lines, raw)
		return nil
	case r.a.wantsJSON():
		return r.a.printLine(raw)
	}
	if mark := markOf(l); mark != "" {
		return r.view.mark(mark)
	}
	return r.view.output(l.Attempt, l.Stream, l.Data)
}

// markOf says what a line of a log is that is not output.
func markOf(l hub.LogLine) string {
	d := l.Dropped
	switch {
	case l.Waiting != nil:
		return markOfWaiting(*l.Waiting)
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

// markOfWaiting says why nothing comes, and until when output is here.
func markOfWaiting(w hub.Unlinked) string {
	here := "no output is here yet"
	if w.Until != nil {
		here = "its output until " + w.Until.Local().Format(time.DateTime) + " is here"
	}
	if w.Suspended {
		return fmt.Sprintf("the connection with %s is suspended; %s, and no more comes until it is resumed", w.Spoke, here)
	}
	return fmt.Sprintf("%s is not linked; %s, and this waits until it is linked again", w.Spoke, here)
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
