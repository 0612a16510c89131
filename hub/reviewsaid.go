package hub

import (
	"cmp"
	"fmt"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// reviewWords are the words for what a review came to.
var reviewWords = map[string]string{commands.Approve: "approved", commands.RequestChanges: "sent back with changes", commands.Merged: "merged", commands.Conflicts: "sent back, as it conflicts"}

// ReviewSaid says what came of the last review of an agent, and whether its spoke knows; "" where there was none.
func (v AgentView) ReviewSaid() string {
	o := store.ReadReview(v.Review)
	if o == nil {
		return ""
	}
	said := fmt.Sprintf("attempt %d was %s by %s", o.Attempt, reviewWords[o.Verdict], o.By)
	if o.Message != "" {
		said += ": " + commands.OneLine(commands.Clip(o.Message))
	}
	switch {
	case o.State == store.PauseRefused:
		said += fmt.Sprintf("; %s refused it: %s", v.Spoke, commands.OneLine(cmp.Or(o.Why, string(o.Code))))
	case o.State == store.PauseSent && !o.Stands(o.Attempt):
		said += fmt.Sprintf("; it expired before %s took it", v.Spoke)
	case o.State == store.PauseSent:
		said += fmt.Sprintf("; not yet told to %s", v.Spoke)
	}
	return said
}
