package hub

import (
	"cmp"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/store"
)

// runs says how an agent stands that has started. To revoke is final and ends the agent, so it is named only after a
// silence longer than its lease.
func (w *whyAgent) runs() {
	c := w.at
	heard := c.reached()
	said := w.Clause()
	if !heard || c.Liveness == Late {
		said += ", as " + w.Spoke + " last said"
	}
	fix, since := "", cmp.Or(w.StartedAt, &w.UpdatedAt)
	if w.Reviewed() {
		fix, since = w.reviewFix(), &w.UpdatedAt
		if review := w.ReviewSaid(); review != "" {
			said += "; " + review
		}
	}
	w.add(w.standing(), since, fix, "%s", said)
	w.slow()
	switch {
	case w.refused():
	case heard && c.Full:
		w.add(commands.CauseInbox, c.FullSince, "to make room, "+federation.InboxNext, "no more messages of %s are kept here, so it may have run and ended", w.Spoke)
	case heard && c.Differs != "":
		w.add(commands.CauseHistories, nil, "", "this is what is known here, and nothing is relayed to or from %s: %s", w.Spoke, c.Differs)
	case heard && c.Says.State == string(store.Suspended):
		w.add(commands.CauseConnection, nil, "", "%s has suspended the connection and starts nothing more: %s", w.Spoke, commands.OneLine(c.Says.Reason))
	case heard && c.Liveness == Late:
		w.add(commands.CauseLink, c.LastSeen, "", "%s", w.silence())
	case heard:
	case c.State == store.Suspended:
		w.add(commands.CauseConnection, &c.Since, w.resume(), "the connection is suspended by %s: %s; the agent may go on, and what became of it is told after", c.By, commands.OneLine(c.Reason))
	case c.State != store.Active:
		w.add(commands.CauseConnection, &c.Since, "", "the connection is %s", c.State)
	default:
		w.unheard()
	}
}

// reviewFix is what lets an agent go on whose work is reviewed.
func (v AgentView) reviewFix() string {
	if o := store.ReadReview(v.Review); v.State == commands.Approved && o != nil && o.Verdict == commands.Approve && o.State == store.PauseSent && !o.Stands(o.Attempt) {
		return commands.ShellLine([]string{"spawnmesh", "review", "approve", commands.ShortID(v.Task)}) // the spoke never took it
	}
	if v.State == commands.Approved {
		return commands.ShellLine([]string{"spawnmesh", "review", "merge", commands.ShortID(v.Task), "--onto", "BRANCH"})
	}
	return commands.ShellLine([]string{"spawnmesh", "review", "diff", commands.ShortID(v.Task)}) + ", then review approve or review request-changes"
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
	c := w.at
	since, last := c.down()
	link := "the link is down" + last
	if c.Linked {
		since, link = c.LastSeen, w.silence()
	}
	var silent time.Duration
	if c.LastSeen != nil {
		silent = time.Since(*c.LastSeen)
	}
	if c.Liveness == Dead && silent > cmp.Or(time.Duration(c.LeaseMS)*time.Millisecond, commands.DefaultLease) {
		w.add(commands.CauseLink, since, "", "%s; when the host is back, it says what became of the agent", link)
		w.add(commands.CauseLink, nil, commands.ShellLine([]string{"spawnmesh", "connections", "revoke", w.Spoke, "--reason", "WHY"}), "only if the host is gone for good")
		return
	}
	w.add(commands.CauseLink, since, "", "%s; it may come back by itself, and the agent may go on meanwhile", link)
}

// refused reports whether heartbeats of the spoke are refused, and says so. That its clock is behind is said by itself.
func (w *whyAgent) refused() bool {
	at := w.at.Standing
	at.ClockOffset = ""
	list := at.Heartbeats()
	w.ofSpoke(list)
	return list != nil
}

// silence says how long a spoke that is linked was not heard.
func (w *whyAgent) silence() string {
	if w.at.Liveness == Late {
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
