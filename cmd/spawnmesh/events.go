package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

func (a *app) eventsCommand() *cobra.Command {
	var follow bool
	var since int64
	last := 0
	c := &cobra.Command{
		Use: "events", Short: "Show what has changed, and what changes", Args: cobra.NoArgs,
		Long: `Show what has changed of agents on spokes, of connections and of their links: the
newest events, or with -f those that come. The progress of an agent is told at most
every 10 seconds, and once of each attempt that it overruns its estimate.

Each has a number, greater by one than that of the event before. --since goes on
after one, and what is no longer kept is said. After a restore from a backup the
numbers go on higher up. Events are kept for 7 days, or as retention set says.

With -f an instance that stops is waited for, up to a minute; nothing is missed
meanwhile, and nothing is shown twice.`,
		Example: "  spawnmesh events -f\n  spawnmesh events --since 1207 -o ndjson",
		RunE: func(c *cobra.Command, _ []string) error {
			if last < 0 || since < 0 && c.Flags().Changed("since") {
				return misuse("--since and -n take a number from 0")
			}
			if c.Flags().Changed("since") && c.Flags().Changed("lines") {
				return misuse("events takes one of --since and -n")
			}
			if !follow && !c.Flags().Changed("lines") {
				last = 100
			}
			return a.showEvents(c.Context(), since, last, follow)
		},
	}
	fl := c.Flags()
	fl.BoolVarP(&follow, "follow", "f", false, "go on with what happens, until it is interrupted")
	fl.Int64Var(&since, "since", -1, "only those after the event `N`; 0 for all that are kept")
	fl.IntVarP(&last, "lines", "n", 0, "the last `N` (default: 100, with -f none)")
	fl.Lookup("since").DefValue = "0"
	fl.Lookup("lines").DefValue = "0"
	return c
}

// showEvents shows those after since or, where that is negative, the newest of them.
func (a *app) showEvents(ctx context.Context, since int64, last int, follow bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	lines := []json.RawMessage{}
	gather := a.output == "json" && !follow
	r := &eventReader{a: a, c: c, at: since, each: func(l api.EventLine, raw json.RawMessage) error {
		if gather {
			lines = append(lines, raw)
			return nil
		}
		return a.showEvent(l, raw)
	}}
	if since < 0 && last > 0 {
		if err := r.stream(ctx, false); err != nil {
			return err
		}
		r.at = max(0, r.at-int64(last))
	}
	if !follow {
		if err := r.stream(ctx, false); err != nil || !gather {
			return err
		}
		return a.printJSON(lines)
	}
	return r.follow(ctx)
}

// showEvent writes one line of a stream.
func (a *app) showEvent(l api.EventLine, raw json.RawMessage) error {
	var err error
	switch {
	case a.wantsJSON():
		err = a.printLine(raw)
	case a.output == "name":
		_, err = fmt.Fprintln(a.out, l.Event.Seq)
	case l.Gap.To > 0:
		_, err = fmt.Fprintf(a.out, "[the events %d to %d are no longer kept]\n", l.Gap.From, l.Gap.To)
	default:
		_, err = fmt.Fprintf(a.out, "%s  %d  %s\n", l.Event.At.Local().Format(time.DateTime), l.Event.Seq, printable(eventInWords(l.Event)))
	}
	return err
}

// eventInWords says for people what has changed.
func eventInWords(e api.Event) string {
	why := ""
	if e.Reason != "" {
		why = " (" + e.Reason + ")"
	}
	switch e.Kind {
	case api.EventKindTask:
		at := ""
		if e.Attempt > 0 {
			at = fmt.Sprintf(", attempt %d", e.Attempt)
		}
		if e.State == string(commands.Queued) && e.Accepted && e.Attempt == 0 {
			at = ", accepted"
		}
		return fmt.Sprintf("agent %s on %s: %s%s%s", e.ShortID, e.Spoke, e.State, why, at)
	case api.EventKindProgress:
		return fmt.Sprintf("agent %s on %s: progress %s, attempt %d", e.ShortID, e.Spoke, howFar(e.Progress), e.Attempt)
	case api.EventKindOverrun:
		return fmt.Sprintf("agent %s on %s runs much longer than estimated, attempt %d", e.ShortID, e.Spoke, e.Attempt)
	case api.EventKindConnection:
		return fmt.Sprintf("connection with %s: %s%s", e.Spoke+e.Hub, e.State, why)
	case api.EventKindLink:
		return fmt.Sprintf("link with %s: %s", e.Spoke+e.Hub, e.State)
	case api.EventKindStarted:
		return "this instance was started"
	case api.EventKindRestored:
		return "this instance goes on with a database of before: what had happened since is not in it"
	}
	return string(e.Kind) + ": " + e.State + why
}

// An eventReader hands on each event once: where a stream was cut off, it goes on behind the
// last one.
type eventReader struct {
	a    *app
	c    *control.Client
	at   int64     // number of the last event; negative: from now on
	away time.Time // since when the instance does not answer; zero when it does
	each func(api.EventLine, json.RawMessage) error
	// begun is told once it is known where the events begin, and before the first of them. It may be nil.
	begun func()
}

// stream hands on what comes in one answer.
func (r *eventReader) stream(ctx context.Context, follow bool) error {
	p := api.FollowEventsParams{Follow: follow}
	if r.at >= 0 {
		p.Since = &r.at
	}
	resp, err := r.c.API().FollowEvents(ctx, &p)
	return r.c.Stream(resp, err, func(raw json.RawMessage) error {
		var l api.EventLine
		if err := json.Unmarshal(raw, &l); err != nil {
			return fmt.Errorf("reading an event: %w", err)
		}
		r.away = time.Time{}
		if l.Position != nil {
			r.at = *l.Position
			if r.begun != nil {
				r.begun()
			}
			return nil
		}
		r.at = max(r.at, l.Gap.To, l.Event.Seq)
		return r.each(l, raw)
	})
}

// follow hands on what comes, until ctx ends or the instance is away for too long.
func (r *eventReader) follow(ctx context.Context) error {
	for {
		err := r.stream(ctx, true)
		code := commands.CodeOf(err)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case r.at < 0 || !isAway(code):
			return err
		case r.away.IsZero():
			r.away = time.Now()
			fmt.Fprintf(r.a.err, "the instance does not answer; this waits for %s\n", commands.Lasting(patience))
		case time.Since(r.away) > patience:
			return commands.Refuse(code, "the instance did not answer for %s", commands.Lasting(patience)).
				Hinting("when it is back: %s", r.a.line("events", "-f", "--since", fmt.Sprint(r.at)))
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}
