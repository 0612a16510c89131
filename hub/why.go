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
	switch {
	case w.RetriedAs != "":
		w.add(commands.CauseOrder, nil, "spawnmesh why "+commands.ShortID(w.RetriedAs), "it was ordered anew")
	case w.State == commands.Completed || w.Refused():
	case w.NotRetried != nil:
		n := w.NotRetried
		w.add(commands.CauseOrder, nil, n.Hint+": "+commands.ShellLine(append([]string{"spawnmesh"}, n.Run...)), "%s", n.Why)
	default:
		r.Fix = "spawnmesh retry " + commands.ShortID(w.Task)
	}
}

// killed says that its end is ordered, and that the newest such order was refused.
func (w *whyAgent) killed() {
	if kill := store.ReadKill(w.Kill); kill != nil {
		said := fmt.Sprintf("a %s was ordered by %s: %s", kill.Word(), kill.By, kill.Reason)
		if w.ProtocolCancel == "unavailable" && !w.State.Terminal() {
			said += "; its spoke has not taken it yet"
		}
		w.add(commands.CauseKill, kill.At, "", "%s", said)
	}
	if kill := store.ReadKill(w.RefusedKill); kill != nil {
		fix := ""
		if !w.State.Terminal() {
			fix = "once its host allows it: " + commands.ShellLine([]string{"spawnmesh", kill.Word(), commands.ShortID(w.Task), "--reason", "WHY"})
		}
		w.add(commands.CauseKill, kill.At, fix, "a %s was ordered by %s: %s; %s", kill.Word(), kill.By, kill.Reason, w.NotKilled())
	}
}

// NotKilled says who refused the newest order to end the agent, and why; "" where nobody did.
func (v AgentView) NotKilled() string {
	kill := store.ReadKill(v.RefusedKill)
	if kill == nil {
		return ""
	}
	return fmt.Sprintf("%s refused it: %s", v.Spoke, oneLine(cmp.Or(kill.Why, string(kill.Code))))
}

// paused says what became of the newest word of this hub on a pause, and of one that stands still by another word how it goes on.
func (w *whyAgent) paused() {
	said, fix := w.PauseSaid(), ""
	if w.State == commands.Paused {
		fix = "spawnmesh resume " + commands.ShortID(w.Task)
		said = cmp.Or(said, "no pause of this hub is in force: its host has paused it, or this hub did before it was restored; on its host, status says by whom and why")
	}
	if said != "" {
		w.add(commands.CauseState, nil, fix, "%s", said)
	}
}

// PauseSaid says what became of the last order to stand still or to go on, as far as it is of now; "" where none is.
func (v AgentView) PauseSaid() string {
	var p store.OrderedPause
	if v.State.Terminal() || v.Pause == nil || json.Unmarshal(v.Pause, &p) != nil {
		return ""
	}
	by := pauseBy(p)
	if last := p.InForce(); last != nil && last.Paused && p.State != store.PauseTaken {
		by = pauseBy(*last) + "; then " + by
	}
	switch {
	case p.State == store.PauseRefused:
		return fmt.Sprintf("%s; %s refused it: %s", by, v.Spoke, oneLine(cmp.Or(p.Why, string(p.Code))))
	case p.State == store.PauseExpired:
		return fmt.Sprintf("%s; it expired before %s took it", by, v.Spoke)
	case p.State == store.PauseSent:
		return by + "; its spoke has not taken it yet"
	case p.Paused && v.State == commands.Paused: // else it goes on by another word: of its host, or of a cancel that lets it finish
		return by
	}
	return ""
}

func pauseBy(p store.OrderedPause) string {
	word := "resume"
	if p.Paused {
		word = "pause"
	}
	by := fmt.Sprintf("a %s was ordered by %s", word, p.By)
	if p.Reason != "" {
		by += ": " + p.Reason
	}
	return by
}

// clock says that times of this spoke are not those of the hub.
func (w *whyAgent) clock() {
	d, err := time.ParseDuration(w.at.ClockOffset)
	if err != nil || d == 0 || w.at.State.Ended() || slices.ContainsFunc(w.list, func(r commands.WhyReason) bool { return r.Code == commands.CauseClock }) {
		return
	}
	how := "ahead"
	if d < 0 {
		how = "behind"
	}
	w.add(commands.CauseClock, nil, "set the clock of its host", "the clock of %s is %s %s", w.Spoke, commands.Lasting(d.Abs()), how).Figure = commands.Figure(d.Seconds())
}

// waits says what keeps an agent from starting. What its spoke said is not asked where that is not heard.
func (w *whyAgent) waits() {
	accepted := w.AcceptedAt != nil
	started := fmt.Sprintf("%s has accepted it and may have started it; what became of it is told when", w.Spoke)
	away := len(w.list)
	switch c := w.at; {
	case c.State != store.Active && accepted:
		w.add(commands.CauseConnection, &c.Since, w.resume(), "%s the connection, which is %s, is resumed", started, c.State)
	case c.State != store.Active:
		w.add(commands.CauseConnection, &c.Since, w.resume(), "it waits for the connection with %s, which is %s", w.Spoke, c.State)
	case c.Full:
		w.add(commands.CauseInbox, c.FullSince, "to make room, "+federation.InboxNext, "it waits, as far as is known here; no more messages of %s are kept here, so it may have run and ended", w.Spoke)
	case c.Differs != "" && c.Linked:
		w.add(commands.CauseHistories, nil, "", "it waits, as far as is known here; nothing is relayed to or from %s: %s", w.Spoke, c.Differs)
	case c.Says.State == string(store.Suspended):
		w.add(commands.CauseConnection, nil, "it is resumed on its host", "it waits until %s resumes the connection, which it has suspended: %s", w.Spoke, oneLine(c.Says.Reason))
	case w.refused():
	case !c.Linked && accepted:
		w.add(commands.CauseLink, c.LastSeen, linkNext, "%s the link, which is down%s, is up", started, never(c))
	case !c.Linked:
		w.add(commands.CauseLink, c.LastSeen, linkNext, "it waits for the link with %s, which is down%s", w.Spoke, never(c))
	case c.Says.Refuses != nil:
		w.add(commands.CauseKey, nil, "after a restore from an older backup: "+commands.ShellLine(append([]string{"spawnmesh"}, federation.MendKey(c.Says.Refuses.Key, c.KeyRevoked)...)),
			"it waits for %s, which has ended the key that this hub signs with", w.Spoke)
	}
	heard := len(w.list) == away
	w.frozen()
	w.kept()
	if !accepted {
		w.order(heard)
	}
	if heard && accepted {
		w.atSpoke()
	}
	if c := w.at; c.BeatRefused == nil && c.Linked && c.Liveness != "alive" && c.LastSeen != nil {
		w.add(commands.CauseLink, c.LastSeen, "", "%s", w.silence())
	}
}

// heard reports whether what a spoke says of its work is of now.
func (c SpokeView) heard() bool {
	return c.State == store.Active && c.Linked && (c.Liveness == "alive" || c.Liveness == "late") && c.Says.State == string(store.Active) && !c.Full && c.Differs == ""
}

// linkNext is what helps where a spoke is not linked.
const linkNext = "on its host: spawnmesh doctor; it links again by itself when it runs and reaches this hub"

func never(c SpokeView) string {
	if c.LastSeen == nil {
		return " (never heard of)"
	}
	return ""
}

func (w *whyAgent) resume() string {
	if w.at.State != store.Suspended {
		return ""
	}
	return commands.ShellLine([]string{"spawnmesh", "connections", "resume", w.at.Name})
}

// order says that the order is on its way, and what it brings.
func (w *whyAgent) order(heard bool) {
	var s commands.Spawn
	_ = json.Unmarshal(w.Spec, &s) // our own hub wrote it
	with := ""
	if n := len(s.Files); n > 0 {
		with = fmt.Sprintf(", with %d files", n)
	}
	text := "its order" + with + " has been on the way"
	if heard {
		text = "it waits for " + w.Spoke + " to accept it" + with
	}
	w.add(commands.CauseOrder, &w.CreatedAt, "", "%s", text).Until = &w.ExpiresAt
}

func (w *whyAgent) frozen() {
	if f := w.at.Frozen; f != nil {
		since := time.UnixMilli(f.Since)
		w.add(commands.CauseFreeze, &since, commands.ShellLine([]string{"spawnmesh", "unfreeze", "--scope", w.at.FrozenScope, "--reason", "WHY"}),
			"what is ordered on %s is frozen here by %s: %s", w.Spoke, f.By, oneLine(f.Reason))
	}
}

// kept says what of a connection that is up keeps its agents: a freeze of the spoke, its key, its inbox, a queue that nobody reads.
func (w *whyAgent) kept() {
	c := w.at
	if f := c.Says.Freeze; f != nil && f.Frozen {
		since := time.UnixMilli(f.Since)
		w.add(commands.CauseFreeze, &since, "it is unfrozen on its host: spawnmesh unfreeze", "%s starts nothing for this hub: frozen there by %s: %s", w.Spoke, oneLine(f.By), oneLine(f.Reason))
	}
	if c.Refuses != nil {
		w.add(commands.CauseKey, nil, "its operator has to tell a newer one", "nothing of %s is taken: the key that it signs with has ended here (%s)", w.Spoke, c.Refuses.Code)
	}
	if c.Says.Full && c.Linked {
		w.add(commands.CauseInbox, nil, "it goes on when there is room there", "%s keeps no more messages of this hub", w.Spoke)
	}
	for _, q := range c.Queues {
		if q.Problem != "" {
			w.add(commands.CauseQueue, nil, "spawnmesh doctor", "what has come from %s is not read: %s", w.Spoke, oneLine(q.Problem))
		}
	}
}

// atSpoke says what keeps an agent that was accepted, by the last heartbeat of its spoke.
func (w *whyAgent) atSpoke() {
	c := w.at
	if c.Stopping {
		w.add(commands.CauseStopping, nil, "it goes on when it is started again on its host", "%s is stopping, and starts it when it runs again", w.Spoke)
	}
	if c.StartsNone != "" {
		w.add(commands.CauseHost, nil, "it goes on by itself when its host has mended that", "it waits for %s, which starts nothing now: %s", w.Spoke, oneLine(c.StartsNone))
	}
	if c.Isolation == commands.IsolationUnmet {
		w.add(commands.CauseIsolation, nil, "on its host: spawnmesh doctor", "%s cannot confine agents as its policy demands", w.Spoke)
	}
	if w.Attempt > 0 {
		w.next()
	} else if c.Running >= c.Slots {
		text := fmt.Sprintf("it waits for a free slot on %s, which has %d", w.Spoke, c.Slots)
		if w.Before != nil {
			text += "; " + commands.InLine(*w.Before, "this hub")
		}
		w.add(commands.CauseSlots, nil, "", "%s", text).Figure = commands.Figure(c.Slots)
	}
	if len(w.list) == 0 {
		// As it is typed there: the options of this call are about this hub.
		w.add(commands.CauseState, w.AcceptedAt, "where that stays, every reason is seen on its host: spawnmesh why "+commands.ShortID(w.Task),
			"it waits for %s to start it, which had %d of its %d slots taken when it last said so", w.Spoke, c.Running, c.Slots)
	}
}

// next says that it waits for its next try.
func (w *whyAgent) next() {
	r := &commands.WhyReason{}
	if w.Reason == commands.Limit {
		r = w.add(commands.CauseLimit, nil, "", "its last run met a limit that is not its host's (exit code 75); no retry was spent, and it goes on by itself")
	} else {
		r = w.add(commands.CauseNotBefore, nil, "", "it waits for its next try")
	}
	for _, e := range w.Attempts {
		if e.Attempt == w.Attempt && e.Next > 0 {
			at := time.UnixMilli(e.Next)
			r.Until = &at
		}
	}
}

// runs says how an agent stands that has started. To revoke is final and ends the agent, so it is named only after a
// silence longer than its lease.
func (w *whyAgent) runs() {
	c := w.at
	heard := c.State == store.Active && c.Linked && (c.Liveness == "alive" || c.Liveness == "late")
	said := w.Clause()
	if !heard || c.Liveness == "late" {
		said += ", as " + w.Spoke + " last said"
	}
	w.add(w.standing(), cmp.Or(w.StartedAt, &w.UpdatedAt), "", "%s", said)
	if w.Overrun {
		w.add(commands.CauseState, nil, "", "it runs much longer than estimated; its spoke ends it where it tells no progress")
	}
	if told, fix := w.Stalls(); told != "" {
		w.add(commands.CauseState, nil, fix, "%s", told)
	}
	switch {
	case w.refused():
	case heard && c.Full:
		w.add(commands.CauseInbox, c.FullSince, "to make room, "+federation.InboxNext, "no more messages of %s are kept here, so it may have run and ended", w.Spoke)
	case heard && c.Differs != "":
		w.add(commands.CauseHistories, nil, "", "this is what is known here, and nothing is relayed to or from %s: %s", w.Spoke, c.Differs)
	case heard && c.Says.State == string(store.Suspended):
		w.add(commands.CauseConnection, nil, "", "%s has suspended the connection and starts nothing more: %s", w.Spoke, oneLine(c.Says.Reason))
	case heard && c.Liveness == "late":
		w.add(commands.CauseLink, c.LastSeen, "", "%s", w.silence())
	case heard:
	case c.State == store.Suspended:
		w.add(commands.CauseConnection, &c.Since, w.resume(), "the connection is suspended by %s: %s; the agent may go on, and what became of it is told after", c.By, oneLine(c.Reason))
	case c.State != store.Active:
		w.add(commands.CauseConnection, &c.Since, "", "the connection is %s", c.State)
	default:
		w.unheard()
	}
}

// Stalls says of an agent that runs that it shows no work, and what helps; "" where it does.
func (v AgentView) Stalls() (said, fix string) {
	switch {
	case v.Verdict == nil || v.State != commands.Running:
	case v.Verdict.Word == commands.Hung:
		return "it seems hung: " + v.Verdict.Evidence, commands.ShellLine([]string{"spawnmesh", "cancel", commands.ShortID(v.Task), "--reason", "WHY"})
	case v.Verdict.Word == commands.Asleep:
		return "it is asleep: " + v.Verdict.Evidence, ""
	}
	return "", ""
}

// unheard says that nothing is heard of a spoke, and what to do.
func (w *whyAgent) unheard() {
	c, link := w.at, "the link is down"
	if c.Linked {
		link = w.silence()
	}
	var silent time.Duration
	if c.LastSeen != nil {
		silent = time.Since(*c.LastSeen)
	}
	if c.Liveness == "dead" && silent > cmp.Or(time.Duration(c.LeaseMS)*time.Millisecond, commands.DefaultLease) {
		w.add(commands.CauseLink, c.LastSeen, "", "%s; when the host is back, it says what became of the agent", link)
		w.add(commands.CauseLink, nil, commands.ShellLine([]string{"spawnmesh", "connections", "revoke", w.Spoke, "--reason", "WHY"}), "only if the host is gone for good")
		return
	}
	w.add(commands.CauseLink, c.LastSeen, "", "%s; it may come back by itself, and the agent may go on meanwhile", link)
}

// refused reports whether heartbeats of the spoke are refused, and says so. That its clock is behind is said by itself.
func (w *whyAgent) refused() bool {
	c := w.at
	list := federation.Standing{Connection: c.Connection, Linked: c.Linked, BeatRefused: c.BeatRefused}.Heartbeats()
	for _, r := range list {
		r.Text = w.Spoke + ": " + r.Text
		w.list = append(w.list, r)
	}
	return list != nil
}

// silence says how long a spoke that is linked was not heard.
func (w *whyAgent) silence() string {
	if w.at.Liveness == "late" {
		return w.Spoke + " is late with its heartbeats"
	}
	return "the link is up and nothing is heard over it"
}

// standing is the cause of a state that has no other.
func (w *whyAgent) standing() commands.Cause {
	switch w.State {
	case commands.AwaitingInput:
		return commands.CauseQuestion
	case commands.InReview, commands.Approved:
		return commands.CauseReview
	}
	return commands.CauseState
}

// clauses say how an agent stands, by its state.
var clauses = map[commands.State]string{
	commands.Claimed:       "it is about to start",
	commands.Running:       "it is running",
	commands.AwaitingInput: "it waits for input",
	commands.Blocked:       "it is blocked until somebody decides",
	commands.InReview:      "it is delivered, and waits for its review",
	commands.Approved:      "its review has passed, and it waits for its merge",
	commands.Completed:     "it has completed",
	commands.Failed:        "it has failed",
	commands.Cancelled:     "it was cancelled",
	commands.Expired:       "it has expired",
	commands.Unavailable:   "it could not be run",
}

// Clause says in one clause how an agent stands, and by which reason.
func (v AgentView) Clause() string {
	if v.Refused() {
		return "it " + v.Sentence()
	}
	if _, unknown, found := strings.Cut(v.Sentence(), "("+string(commands.LinkRevoked)+"): "); found {
		return unknown
	}
	if v.State == commands.Failed && v.Reason == commands.ExecutorDied {
		lost := "it was lost"
		if how, told := strings.CutPrefix(v.Sentence(), string(v.State)+": "); told { // a viewer is not told
			lost += ": " + how
		}
		return lost + "; what it had done until then stays done; order it again, and --on-loss rerun where that may be repeated"
	}
	if v.State == commands.Paused && v.Reason == commands.ExecutorDied {
		return "it is paused, and its process is gone; resumed it runs once more"
	}
	if v.State == commands.Unavailable && v.Reason == commands.LinkRevoked && v.Attempt > 0 {
		return fmt.Sprintf("it has run, and was to run again when the connection was revoked (%s)", v.Reason)
	}
	clause, known := clauses[v.State]
	if !known {
		clause = "it is " + string(v.State)
	}
	return clause + strings.TrimPrefix(v.Sentence(), string(v.State))
}

// oneLine is a text of somebody else in one line: it may not look like lines of ours.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
