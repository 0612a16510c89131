package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
)

// outcomes say how an attempt ended that another one follows.
var outcomes = map[commands.Outcome]string{
	commands.Succeeded:     "completed",
	commands.AttemptFailed: "failed",
	commands.TimedOut:      "timed out",
	commands.AttemptKilled: "killed",
	commands.Interrupted:   "lost",
	commands.Released:      "could not be started yet",
	commands.CouldNotStart: "could not be started",
	commands.Parked:        "parked",
}

// attemptsOf says how each attempt of an agent ended, and how the last one stands;
// of the only one its number is enough.
func attemptsOf(v agentView) (lines []string) {
	ends := slices.Clone(v.Attempts)
	slices.SortStableFunc(ends, func(a, b commands.Ended) int { return cmp.Compare(a.Attempt, b.Attempt) })
	last := 0
	for _, e := range ends {
		lines, last = append(lines, attemptLine(e)), e.Attempt
	}
	switch {
	case len(lines) > 0 && v.Attempt > last:
		lines = append(lines, fmt.Sprintf("%d  %s", v.Attempt, v.Sentence()))
	case len(lines) == 0 && v.Attempt > 0:
		lines = append(lines, strconv.Itoa(v.Attempt))
	}
	return lines
}

// foundLost reports whether an attempt left no record of its end: only when its spoke
// found that is known.
func foundLost(o commands.Outcome, x commands.Exit) bool {
	return o == commands.Interrupted && x.Code < 0 && x.Signal == ""
}

// endedAs names the time at which an agent ended, as far as that is known.
func endedAs(v agentView) string {
	r := resultOf(v.AgentView)
	switch {
	case foundLost(r.Outcome, r.Exit):
		return "found lost"
	case v.State == commands.Unavailable && v.Result == nil && v.StartedAt != nil: // a hub's word; its spoke knows the end
		return "given up"
	}
	return "ended"
}

func attemptLine(e commands.Ended) string {
	line := fmt.Sprintf("%d  %s", e.Attempt, cmp.Or(outcomes[e.Outcome], string(e.Outcome)))
	if e.Reason != "" {
		line += fmt.Sprintf(" (%s)", e.Reason)
	}
	when := ", "
	if foundLost(e.Outcome, e.Exit) {
		when = ", found "
	}
	if at := time.UnixMilli(e.At); e.At > 0 {
		line += when + stamp(&at, nil)
	}
	if r := (&commands.Result{Exit: e.Exit}).Sentence(); r != "" {
		line += ": " + r
	}
	return line
}
