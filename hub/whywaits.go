package hub

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/store"
)

// waits says what keeps an agent from starting: first where it may be by what is known here, then what keeps its spoke from
// taking work, then what is its own. What its spoke said of its work is not told where that is not of now.
func (w *whyAgent) waits() {
	accepted := w.AcceptedAt != nil
	w.apart(accepted)
	c := w.at
	heard := len(w.list) == 0 && c.Says.State != string(store.Suspended) && c.BeatRefused == nil && c.Ahead == nil && c.Says.Refuses == nil
	w.ofSpoke(w.keeps(accepted))
	if !accepted {
		w.order(heard)
	}
	if heard && accepted {
		w.atSpoke()
	}
	if c.Linked && c.Liveness == Late && c.LastSeen != nil {
		w.add(commands.CauseLink, c.LastSeen, "", "%s", w.silence())
	}
}

// apart says where an agent may be whose spoke is not heard of, or whose messages are not taken.
func (w *whyAgent) apart(accepted bool) {
	since, last := w.at.down()
	started := fmt.Sprintf("%s has accepted it and may have started it; what became of it is told when", w.Spoke)
	switch c := w.at; {
	case c.State != store.Active && accepted:
		w.add(commands.CauseConnection, &c.Since, w.resume(), "%s the connection, which is %s, is resumed", started, c.State)
	case c.State != store.Active:
		w.add(commands.CauseConnection, &c.Since, w.resume(), "it waits for the connection with %s, which is %s", w.Spoke, c.State)
	case c.Full:
		w.add(commands.CauseInbox, c.FullSince, "to make room, "+federation.InboxNext, "it waits, as far as is known here; no more messages of %s are kept here, so it may have run and ended", w.Spoke)
	case c.Differs != "" && c.Linked:
		w.add(commands.CauseHistories, nil, "", "it waits, as far as is known here; nothing is relayed to or from %s: %s", w.Spoke, c.Differs)
	case !c.Linked && accepted:
		w.add(commands.CauseLink, since, linkNext, "%s the link, which is down%s, is up", started, last)
	case !c.Linked:
		w.add(commands.CauseLink, since, linkNext, "it waits for the link with %s, which is down%s", w.Spoke, last)
	}
}

// keeps is what keeps the spoke from taking work, without what was said, and what keeps no start of this agent. One that was
// accepted waits for its own slot, and not for what its spoke refuses of newer orders.
func (w *whyAgent) keeps(accepted bool) []commands.WhyReason {
	c := w.at
	c.Declines = slices.DeleteFunc(slices.Clone(c.Declines), func(d commands.Decline) bool { return !d.Starts() })
	if accepted {
		c.ClockOffset = "" // see [whyAgent.clock]
	}
	return slices.DeleteFunc(c.Keeps(), func(r commands.WhyReason) bool {
		return accepted && r.Code == commands.CauseSlots || slices.ContainsFunc(w.list, func(said commands.WhyReason) bool { return said.Code == r.Code })
	})
}

// ofSpoke adds reasons that are about the spoke, with its name.
func (w *whyAgent) ofSpoke(list []commands.WhyReason) {
	for _, r := range list {
		r.Text = w.Spoke + ": " + r.Text
		w.list = append(w.list, r)
	}
}

// linkNext is what helps where a spoke is not linked.
const linkNext = "on its host: spawnmesh doctor; it links again by itself when it runs and reaches this hub"

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

// atSpoke says what an agent that was accepted waits for, by the last heartbeat of its spoke.
func (w *whyAgent) atSpoke() {
	c := w.at
	if w.Attempt > 0 {
		w.list = append(w.list, w.NextTry())
	} else if c.Running >= c.Slots {
		text := fmt.Sprintf("it waits for a free slot on %s, which has %d", w.Spoke, c.Slots)
		if w.Before != nil {
			text += "; " + commands.InLine(*w.Before, "this hub")
		}
		w.add(commands.CauseSlots, nil, "", "%s", text).Figure = commands.Figure(c.Slots)
	}
	if len(w.list) == 0 {
		// As it is typed there: the options of this call are about this hub.
		w.add(commands.CauseState, w.AcceptedAt, "where that stays, every reason is seen "+commands.OnItsHost+commands.Line("why", commands.ShortID(w.Task)),
			"it waits for %s to start it, which had %d of its %d slots taken when it last said so", w.Spoke, c.Running, c.Slots)
	}
}
