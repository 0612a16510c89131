package hub

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/store"
)

// A whyAgent collects why an agent is where it is.
type whyAgent struct {
	AgentView
	at   SpokeView // its spoke
	list []commands.WhyReason
}

// Why says why an agent is where it is, as far as its hub knows: what weighs most first. There is
// always a reason.
func Why(v AgentView, at SpokeView) []commands.WhyReason {
	w := &whyAgent{AgentView: v, at: at}
	switch {
	case v.State.Terminal():
		w.ended()
	case v.State == commands.Queued:
		w.waits()
	default:
		w.runs()
	}
	w.killed()
	if !v.State.Terminal() {
		w.paused()
		w.clock()
	}
	return w.list
}

func (w *whyAgent) add(code commands.Cause, since *time.Time, fix, format string, args ...any) *commands.WhyReason {
	w.list = append(w.list, commands.WhyReason{Code: code, Text: fmt.Sprintf(format, args...), Since: since, Fix: fix})
	return &w.list[len(w.list)-1]
}

// ended says why it has ended, and what may be done about it.
func (w *whyAgent) ended() {
	r := w.add(commands.CauseEnded, w.EndedAt, "", "%s", w.Clause())
	if w.ExitCode != nil {
		r.Figure = commands.Figure(*w.ExitCode)
	}
	if w.Unheard && w.StartedAt != nil {
		w.add(commands.CauseState, w.StartedAt, commands.Line("kill", commands.ShortID(w.Task), "--reason", "WHY"), "%s has started it, and has not told its end", w.Spoke)
	}
	switch {
	case w.RetriedAs != "":
		w.add(commands.CauseOrder, nil, commands.Line("why", commands.ShortID(w.RetriedAs)), "it was ordered anew")
	case w.Refused():
		if last := len(w.Refusals) - 1; last >= 0 && w.Refusals[last].Hint != "" {
			r.Fix = w.Refusals[last].Spoke + " says: " + commands.OneLine(w.Refusals[last].Hint)
		}
	case w.State == commands.Completed:
	case w.NotRetried != nil:
		n := w.NotRetried
		w.add(commands.CauseOrder, nil, n.Hint+": "+commands.Line(n.Run...), "%s", n.Why)
	default:
		r.Fix = commands.Line("retry", commands.ShortID(w.Task))
	}
	if w.ArchivedAt != nil {
		w.add(commands.CauseState, w.ArchivedAt, commands.Line("unarchive", commands.ShortID(w.Task)), "it is archived, and lists leave it out")
	}
}

// onceAllowed stands before the line that gives an order again which the spoke refuses.
const onceAllowed = "once its host allows it: "

// killed says that its end is ordered, and that the newest such order was refused.
func (w *whyAgent) killed() {
	if kill := store.ReadKill(w.Kill); kill != nil {
		said := orderedBy(kill.Word(), kill.By, kill.Reason)
		if w.ProtocolCancel == "unavailable" && (w.Unheard || !w.State.Terminal()) {
			said += "; its spoke has not taken it yet"
		}
		w.add(commands.CauseKill, kill.At, "", "%s", said)
	}
	for _, said := range []string{w.Finishes(), w.KilledElsewhere()} {
		if said != "" {
			w.add(commands.CauseKill, nil, "", "%s", said)
		}
	}
	if kill := store.ReadKill(w.RefusedKill); kill != nil {
		fix := ""
		if !w.State.Terminal() {
			fix = onceAllowed + commands.Line(kill.Word(), commands.ShortID(w.Task), "--reason", "WHY")
		}
		w.add(commands.CauseKill, kill.At, fix, "%s; %s", orderedBy(kill.Word(), kill.By, kill.Reason), w.NotKilled())
	}
}

// Finishes says of an agent that its spoke lets finish as it was cancelled that this hub knows of no such order; "" of any other.
func (v AgentView) Finishes() string {
	if v.State.Terminal() || v.Reason != commands.CancelRequested || store.ReadKill(v.Kill) != nil {
		return ""
	}
	return "it was cancelled and may finish, and no attempt follows; its host has ordered that, or this hub before it was restored from a backup"
}

// KilledElsewhere says of an agent that was killed that this hub knows of no such order; "" of any other.
func (v AgentView) KilledElsewhere() string {
	if v.State != commands.Cancelled || v.Reason != commands.KillRequested || store.ReadKill(v.Kill) != nil {
		return ""
	}
	return "its host has ordered the kill, or this hub before it was restored from a backup"
}

// NotKilled says who refused the newest order to end the agent, and why; "" where nobody did.
func (v AgentView) NotKilled() string {
	kill := store.ReadKill(v.RefusedKill)
	if kill == nil {
		return ""
	}
	return fmt.Sprintf("%s refused it: %s", v.Spoke, commands.OneLine(cmp.Or(kill.Why, string(kill.Code))))
}

// paused says what became of the newest word of this hub on a pause, of one that stands still how it goes on, and of a word that
// its host refuses, and not the agent as it stands, how to give it again.
func (w *whyAgent) paused() {
	said, fix := w.PauseSaid(), ""
	if w.State == commands.Paused {
		fix = commands.Line("resume", commands.ShortID(w.Task))
		said = cmp.Or(said, "no pause of this hub is in force: its host has paused it, or this hub did before it was restored; on its host, status says by whom and why")
	}
	if p, ok := w.pauseOrdered(); ok && p.State == store.PauseRefused && p.Code != commands.Conflict && p.Code != commands.TooMany {
		fix = onceAllowed + cmp.Or(fix, commands.Line(pauseWord(p), commands.ShortID(w.Task)))
	}
	if said != "" {
		w.add(commands.CauseState, nil, fix, "%s", said)
	}
}

// PauseSaid says what became of the last order to stand still or to go on, as far as it is of now; "" where none is.
func (v AgentView) PauseSaid() string {
	p, ok := v.pauseOrdered()
	if v.State.Terminal() || !ok {
		return ""
	}
	by := pauseBy(p)
	if last := p.InForce(); last != nil && last.Paused && p.State != store.PauseTaken {
		by = pauseBy(*last) + "; then " + by
	}
	switch {
	case p.State == store.PauseRefused:
		return fmt.Sprintf("%s; %s refused it: %s", by, v.Spoke, commands.OneLine(cmp.Or(p.Why, string(p.Code))))
	case p.State == store.PauseExpired:
		return fmt.Sprintf("%s; it expired before %s took it", by, v.Spoke)
	case p.State == store.PauseSent:
		return by + "; its spoke has not taken it yet"
	case p.Paused && v.State == commands.Paused && p.State == store.PauseTaken: // else it goes on by another word: of its host, or of a cancel that lets it finish
		return by
	}
	return ""
}

// pauseOrdered is the newest word of this hub on a pause; ok is false where there is none.
func (v AgentView) pauseOrdered() (p store.OrderedPause, ok bool) {
	ok = v.Pause != nil && json.Unmarshal(v.Pause, &p) == nil
	return p, ok
}

func pauseWord(p store.OrderedPause) string { return (&commands.Pause{Paused: p.Paused}).Word() }

func pauseBy(p store.OrderedPause) string { return orderedBy(pauseWord(p), p.By, p.Reason) }

// orderedBy says who has ordered a kill, a pause or the like, and why where that is known.
func orderedBy(word, by, reason string) string {
	return strings.TrimSuffix(fmt.Sprintf("a %s was ordered by %s: %s", word, by, reason), ": ")
}

// clock says that times of this spoke are not those of the hub.
func (w *whyAgent) clock() {
	d, err := time.ParseDuration(w.at.ClockOffset)
	if err != nil || d == 0 || w.at.State.Ended() || slices.ContainsFunc(w.list, func(r commands.WhyReason) bool { return r.Code == commands.CauseClock }) {
		return
	}
	how := "ahead of"
	if d < 0 {
		how = "behind"
	}
	w.add(commands.CauseClock, nil, federation.SetClocks, "the clock of %s is %s %s that of this hub", w.Spoke, commands.Lasting(d.Abs()), how).Figure = commands.Figure(d.Seconds())
}
