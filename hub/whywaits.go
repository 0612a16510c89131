package hub

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/store"
)

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
		w.add(commands.CauseConnection, nil, "it is resumed on its host", "it waits until %s resumes the connection, which it has suspended: %s", w.Spoke, commands.OneLine(c.Says.Reason))
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
	if c := w.at; c.BeatRefused == nil && c.Linked && c.Liveness != Alive && c.LastSeen != nil {
		w.add(commands.CauseLink, c.LastSeen, "", "%s", w.silence())
	}
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
			"what is ordered on %s is frozen here by %s: %s%s", w.Spoke, f.By, commands.OneLine(f.Reason), w.unheardOf())
	}
}

// unheardOf says that the spoke of an agent that it has accepted does not know yet that it is frozen.
func (w *whyAgent) unheardOf() string {
	if !w.at.FreezeUnheard || w.AcceptedAt == nil {
		return ""
	}
	return "; " + w.Spoke + " has not heard of that yet, and may start it"
}

// kept says what of a connection that is up keeps its agents: a freeze of the spoke, its key, its inbox, a queue that nobody reads.
func (w *whyAgent) kept() {
	c := w.at
	if f := c.Says.Freeze; f != nil && f.Frozen {
		since := time.UnixMilli(f.Since)
		w.add(commands.CauseFreeze, &since, "it goes on when it is unfrozen there", "%s starts nothing for this hub: frozen there by %s: %s", w.Spoke, commands.OneLine(f.By), commands.OneLine(f.Reason))
	}
	if c.Refuses != nil {
		w.add(commands.CauseKey, nil, "its operator has to tell a newer one", "nothing of %s is taken: the key that it signs with has ended here (%s)", w.Spoke, c.Refuses.Code)
	}
	if c.Says.Full && c.Linked {
		w.add(commands.CauseInbox, nil, "it goes on when there is room there", "%s keeps no more messages of this hub", w.Spoke)
	}
	for _, r := range c.declines() {
		r.Text = w.Spoke + " " + r.Text
		w.list = append(w.list, r)
	}
	for _, q := range c.Queues {
		if q.Problem != "" {
			w.add(commands.CauseQueue, nil, "spawnmesh doctor", "what has come from %s is not read: %s", w.Spoke, commands.OneLine(q.Problem))
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
		w.add(commands.CauseHost, nil, "it goes on by itself when its host has mended that", "it waits for %s, which starts nothing now: %s", w.Spoke, commands.OneLine(c.StartsNone))
	}
	if c.Isolation == commands.IsolationUnmet {
		w.add(commands.CauseIsolation, nil, "on its host: spawnmesh doctor", "%s cannot confine agents as its policy demands", w.Spoke)
	}
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
