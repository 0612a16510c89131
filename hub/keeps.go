package hub

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// Keeps says what keeps a spoke from taking work, what weighs most first: each reason as what the spoke does, or what is done to
// it. What it says of itself counts while it is heard.
func (v SpokeView) Keeps() []commands.WhyReason {
	list := v.Inactive()
	if v.State.Ended() {
		return list
	}
	if unheard := v.Heartbeats(); unheard != nil {
		list = append(list, unheard...)
	} else {
		list = append(list, v.unlinked()...)
	}
	list = append(list, v.Declined()...)
	list = append(list, v.Freezes()...)
	list = append(list, v.host()...)
	list = append(list, v.Faults()...)
	if v.Linked && v.Liveness == Alive && v.Running >= v.Slots {
		list = append(list, commands.WhyReason{Code: commands.CauseSlots, Text: "has all of its " + strconv.Itoa(v.Slots) + " slots in use; what is ordered waits there", Figure: commands.Figure(v.Slots),
			Fix: "it goes on when an agent ends; for more, start it anew on its host: spawnmesh spoke run --slots N"})
	}
	return list
}

// unlinked says why nothing is heard of a spoke.
func (v SpokeView) unlinked() []commands.WhyReason {
	r := commands.WhyReason{Code: commands.CauseLink}
	switch {
	case !v.Linked && v.State == store.Suspended: // which cuts the link
		return nil
	case !v.Linked && v.LastSeen == nil:
		r.Text, r.Fix = "is not linked, and was not heard of since this hub started", "start it on its host: spawnmesh spoke run"
	case !v.Linked:
		since, heard := v.down()
		r.Text, r.Since, r.Fix = "is not linked"+heard, since, linkNext
	case v.LastSeen == nil:
		r.Text, r.Since, r.Fix = "is linked, and has said nothing yet", v.LinkedSince, "wait for its first heartbeat"
	case !v.Liveness.Heard():
		r.Text, r.Since, r.Fix = "is linked, and nothing is heard of it", v.LastSeen, "on its host: spawnmesh doctor"
	default:
		return nil
	}
	return []commands.WhyReason{r}
}

// down is since when there is no link; where its end was not seen in this run, when the spoke was heard last.
func (v SpokeView) down() (since *time.Time, heard string) {
	switch {
	case v.DownSince != nil:
		return v.DownSince, ""
	case v.LastSeen != nil:
		return nil, " (heard last at " + v.LastSeen.UTC().Format(time.RFC3339) + ")"
	}
	return nil, " (never heard of)"
}

// host is what a spoke that is linked says of its host.
func (v SpokeView) host() (list []commands.WhyReason) {
	if !v.Linked {
		return nil
	}
	if v.Stopping {
		list = append(list, commands.WhyReason{Code: commands.CauseStopping, Text: "is stopping, and starts nothing more", Fix: "it goes on when it is started again on its host"})
	}
	if v.Isolation == commands.IsolationUnmet {
		list = append(list, commands.WhyReason{Code: commands.CauseIsolation, Text: "starts no program: it cannot confine agents as its policy demands", Fix: "on its host, spawnmesh doctor says why"})
	}
	if v.StartsNone != "" {
		list = append(list, commands.WhyReason{Code: commands.CauseHost, Text: fmt.Sprintf("starts nothing now: %s", commands.OneLine(v.StartsNone)), Fix: "it goes on by itself when that is mended on its host"})
	}
	return list
}
