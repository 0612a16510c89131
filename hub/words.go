package hub

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// endedBy are the words for what has ended an agent, where the reason alone tells it.
var endedBy = map[commands.Reason]string{
	commands.DeadlineElapsed:   "timed out",
	commands.IdleTimeout:       "idle too long",
	commands.Overrun:           "overran its estimate",
	commands.CommandExpired:    "never started",
	commands.KillRequested:     "killed",
	commands.Operator:          "killed",
	commands.LinkRevoked:       "connection ended",
	commands.ExecutorDied:      "lost",
	commands.OOMKilled:         "out of memory",
	commands.CPULimit:          "CPU limit",
	commands.ProcessLimit:      "process limit",
	commands.DiskLimit:         "disk limit",
	commands.OutputLimit:       "output limit",
	commands.PolicyDenied:      "refused",
	commands.GrantDenied:       "refused",
	commands.CapabilityMissing: "refused",
	commands.IDUsed:            "refused",
	commands.InputNotThere:     "input missing",
	commands.ResultUnknown:     "result unknown",
}

// EndWords are the words of [AgentView.Words] that are no state of the machine, sorted. Words of a failed agent that name its exit
// are not among them.
func EndWords() []string {
	list := append(slices.Collect(maps.Values(endedBy)), queuedAgain, couldNotStart, endedUnheard, "kill"+notAnswered, "cancel"+notAnswered)
	slices.Sort(list)
	return slices.Compact(list)
}

// Words of [AgentView.Words] that no reason alone tells.
const (
	queuedAgain   = "queued again"
	couldNotStart = "could not start"
	endedUnheard  = "ended unheard"
	notAnswered   = " not answered"
)

// Words says how an agent stands as people do. The states and reasons of the machine are fewer
// and stricter: they are in State and Reason.
func (v AgentView) Words() string {
	r, _ := commands.ReadResult(v.Result)
	switch {
	case v.State == commands.Queued && v.Attempt > 0:
		return queuedAgain
	case !v.State.Terminal() || v.State == commands.Completed:
		return string(v.State)
	case v.State == commands.Cancelled && v.Reason == commands.CancelRequested:
		return "cancelled"
	case v.Refused() && v.killedFirst():
		return v.endedFirst()
	case v.Refused():
		return "refused"
	case v.unansweredEnd() != "":
		return v.unansweredEnd() + notAnswered
	case r.Outcome == commands.CouldNotStart:
		return couldNotStart
	case v.startedUnheard():
		return endedUnheard
	case endedBy[v.Reason] != "":
		return endedBy[v.Reason]
	case v.State == commands.Failed && r.Exit.Signal != "":
		return "failed: " + r.Exit.Signal
	case v.State == commands.Failed && r.Exit.Code > 0:
		return fmt.Sprintf("failed: exit %d", r.Exit.Code)
	case v.Reason != "":
		return fmt.Sprintf("%s (%s)", v.State, v.Reason)
	}
	return string(v.State)
}

// Stand says of each of these agents how it stands, as [AgentView.Words]; an empty id and one that is not kept have none.
func (h *Hub) Stand(ctx context.Context, tasks []string) (map[string]string, error) {
	tasks = slices.DeleteFunc(slices.Clone(tasks), func(id string) bool { return id == "" })
	if len(tasks) == 0 {
		return nil, nil
	}
	list, err := h.DB.StandOf(ctx, tasks)
	stand := map[string]string{}
	for _, s := range list {
		stand[s.Task] = Stands(s)
	}
	return stand, err
}

// Stands is [AgentView.Words] of an agent of which no more is known. It takes no whole mirror: nobody reads results for two words.
func Stands(s store.Stand) string { return viewOf(store.Mirror(s)).Words() }

// killedFirst reports whether a kill was at the spoke before the order.
func (v AgentView) killedFirst() bool {
	n := len(v.Refusals)
	return n > 0 && v.Refusals[n-1].Code == commands.Tombstone
}

// endedFirst is what was at the spoke before the order: a kill, or a cancel.
func (v AgentView) endedFirst() string {
	if v.Reason == commands.CancelRequested {
		return "cancelled"
	}
	return "killed"
}

// InWords is Words with what else is known, in one line.
func (v AgentView) InWords() string {
	rest, ok := strings.CutPrefix(v.Sentence(), string(v.State)+": ")
	words := v.Words()
	switch {
	case !ok || strings.HasPrefix(words, string(v.State)):
		return v.Sentence()
	case strings.HasPrefix(rest, words):
		return rest
	}
	return words + ": " + rest
}
