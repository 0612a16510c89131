package hub

import (
	"fmt"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
)

// A Host is what the host of an agent knows of it besides the agent itself.
type Host struct {
	Hub     string               // who asked for it
	Runs    bool                 // a spoke runs here
	Lease   *time.Time           // until when its attempt goes on without a spoke; nil = none is under way
	Reasons []commands.WhyReason // what keeps it, where it waits, and what it asks
	Brief   bool                 // without what it was given, wrote and was told
}

// WhyHere says on the host of an agent why it is where it is, in the words of [Why]. There is always a reason.
func WhyHere(v AgentView, at Host) []commands.WhyReason {
	if at.Brief {
		v = v.Brief()
	}
	w := &whyAgent{AgentView: v}
	switch {
	case v.State.Terminal():
		w.endedHere(at)
	case v.State == commands.Queued:
		w.waitsHere(at)
	case len(at.recalls()) > 0:
		w.list = at.recalls()
	case at.Lease != nil && !at.Runs:
		w.leftHere(at)
	default:
		w.runsHere(at)
	}
	w.killed()
	if said := w.PauseSaid(); said != "" {
		w.add(commands.CauseState, nil, commands.Line("resume", commands.ShortID(w.Task)), "%s", said)
	}
	return w.list
}

// recalls are the reasons of what waits until its hub has said what became of it before a restore.
func (h Host) recalls() []commands.WhyReason {
	return slices.DeleteFunc(slices.Clone(h.Reasons), func(r commands.WhyReason) bool { return r.Code != commands.CauseHistories })
}

func (w *whyAgent) endedHere(at Host) {
	r := w.add(commands.CauseEnded, w.EndedAt, "", "%s", w.Clause())
	if w.ExitCode != nil {
		r.Figure = commands.Figure(*w.ExitCode)
	}
	if w.ConnState.Ended() {
		w.add(commands.CauseConnection, nil, "", "the connection with %s is %s", at.Hub, w.ConnState)
	}
}

// waitsHere says what keeps it. That it waits for its next try is said by what the last one met.
func (w *whyAgent) waitsHere(at Host) {
	w.list = slices.Clone(at.Reasons)
	if i := slices.IndexFunc(w.list, func(r commands.WhyReason) bool { return r.Code == commands.CauseNotBefore }); i >= 0 && w.Attempt > 0 {
		next := w.NextTry()
		if next.Until == nil {
			next.Until = w.list[i].Until
		}
		w.list[i] = next
	}
	if len(w.list) == 0 {
		w.add(commands.CauseState, &w.UpdatedAt, "", "nothing keeps it: it is about to be started")
	}
}

// leftHere says what becomes of an agent without a spoke.
func (w *whyAgent) leftHere(at Host) {
	said := "it was running here as attempt %d, and no spoke runs: one that is started in time goes on with it"
	if !time.Now().Before(*at.Lease) {
		said = "it was running here as attempt %d until no spoke ran any more; its lease has ended, and its shim has ended it then"
	}
	w.add(commands.CauseSpoke, nil, commands.Line("spoke", "run"), said, w.Attempt).Until = at.Lease
}

func (w *whyAgent) runsHere(at Host) {
	said := w.Clause()
	if w.State == commands.Running || w.State == commands.Claimed {
		said = fmt.Sprintf("%s here, as attempt %d", said, w.Attempt)
	}
	w.add(w.standing(), w.StartedAt, "", "%s", said)
	w.slow()
	if asks := slices.DeleteFunc(slices.Clone(at.Reasons), func(r commands.WhyReason) bool { return r.Code != commands.CauseQuestion }); len(asks) > 0 && w.State == commands.AwaitingInput {
		w.list = append(asks, w.list[1:]...)
	}
}

// slow says that an agent runs longer than it was thought to, or shows no work.
func (w *whyAgent) slow() {
	if w.Overrun {
		w.add(commands.CauseState, w.OverrunSince, "", "it runs much longer than estimated%s; its spoke ends it%s where it tells no progress", atTime(" since ", w.OverrunSince), atTime(" at ", w.OverrunUntil)).Until = w.OverrunUntil
	}
	if told, fix := w.Stalls(); told != "" {
		w.add(commands.CauseState, nil, fix, "%s", told)
	}
}

// atTime is a word and a time behind it; "" where that is not known.
func atTime(word string, t *time.Time) string {
	if t == nil {
		return ""
	}
	return word + t.UTC().Format(time.RFC3339)
}

// NextTry says that the next attempt waits, what the last one met, and until when.
func (v AgentView) NextTry() commands.WhyReason {
	r := commands.WhyReason{Code: commands.CauseNotBefore, Text: "it waits for its next try"}
	met := ""
	for _, e := range v.Attempts {
		if e.Attempt != v.Attempt {
			continue
		}
		if met = fmt.Sprintf(" (exit code %d)", e.Exit.Code); e.Exit.Code != tryLater {
			met = fmt.Sprintf(" (exit code %d, and its output has words of limit_patterns in the policy there)", e.Exit.Code)
		}
		if e.Outcome == commands.Released && e.Exit.Error != "" {
			r.Text = fmt.Sprintf("attempt %d could not be started, spent no retry, and is followed by another one: %s", e.Attempt, commands.OneLine(e.Exit.Error))
		}
		if e.Next > 0 {
			at := time.UnixMilli(e.Next)
			r.Until = &at
		}
	}
	if v.Reason == commands.Limit {
		r.Code, r.Text = commands.CauseLimit, "its last run met a limit that is not its host's"+met+"; no retry was spent, and it goes on by itself"
	}
	return r
}

// tryLater is the exit code of an agent that says itself that it has met a limit of somebody else's: EX_TEMPFAIL of sysexits.h.
const tryLater = 75
