package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

// How many lines of output status shows: a screen has 24, and wider ones have more.
const (
	fewLines  = 10
	manyLines = 40
)

// fromEnd is how much of a log is read for its last lines.
const fromEnd = 64 << 10

// linesShown is how many lines of the streams in a result status shows; below 0: all.
func (a *app) linesShown() int {
	if a.output == "wide" {
		return -1
	}
	return fewLines
}

// printEnd shows the end of a stream, or all of a short one, and how much of the
// stream is not shown or was not kept.
func (a *app) printEnd(stream string, o commands.Output, lines int) {
	shown, what := lastOf(o.Tail, lines), ""
	switch {
	case o.Dropped > 0:
		what = fmt.Sprintf(" (its end; %d of its %d bytes were dropped)", o.Dropped, o.Bytes)
	case o.Bytes > int64(len(shown)):
		what = fmt.Sprintf(" (its end, of %d bytes)", o.Bytes)
	}
	if o.Tail != "" || o.Dropped > 0 {
		fmt.Fprintf(a.out, "\n%s%s\n%s\n", stream, what, printable(strings.TrimSuffix(shown, "\n")))
	}
}

// lastOf returns the last lines of text; all of them where lines is below 0.
func lastOf(text string, lines int) string {
	all := slices.Collect(strings.Lines(text))
	if lines >= 0 {
		all = all[max(0, len(all)-lines):]
	}
	return strings.Join(all, "")
}

// printLastLines shows the end of the output of an agent whose result does not have it: it runs, or was lost.
func (a *app) printLastLines(ctx context.Context, c *control.Client, v agentView) error {
	r, told := commands.ReadResult(v.Result)
	if v.Attempt == 0 || told && !r.Stdout.Cut && !r.Stderr.Cut {
		return nil
	}
	f := logFlags{last: fewLines, attempt: v.Attempt, seq: -fromEnd}
	if a.output == "wide" {
		f.last = manyLines
	}
	for _, s := range v.Output { // what is before them in the log is as long, or longer
		f.seq += s.Through
	}
	f.seq = max(f.seq, 0)
	var text bytes.Buffer
	into := *a
	into.out, into.err = &text, &text
	err := error(nil)
	if v.Hub != "" {
		err = into.hostLogs(ctx, c, v, f)
	} else if len(v.Output) > 0 {
		err = into.logs(ctx, c, v.Task, f)
	}
	if commands.CodeOf(err) == commands.Forbidden {
		return nil // who may see how an agent stands need not see what it writes
	}
	if err == nil && text.Len() > 0 {
		_, err = fmt.Fprintf(a.out, "\nlast lines\n%s\n", printable(strings.TrimSuffix(text.String(), "\n")))
	}
	return err
}
