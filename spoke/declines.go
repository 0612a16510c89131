package spoke

import (
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// declines says which orders of a hub are not taken here whatever they say, and why: by its grant, or by the policy of this host.
func declines(g store.GrantTerms, rules *policy.Policy, now time.Time) (list []commands.Decline) {
	if e := g.Expires; e != nil && !now.Before(*e) {
		list = append(list, commands.Decline{Code: commands.DeclinesExpired, Since: max(0, e.UnixMilli())})
	}
	if !slices.ContainsFunc(g.Runtimes, rules.Runs) {
		list = append(list, commands.Decline{Code: commands.DeclinesPolicy, What: string(commands.SpawnKind)})
	}
	for _, kind := range store.FullGrant().Kinds {
		if !slices.Contains(g.Kinds, kind) {
			list = append(list, commands.Decline{Code: commands.DeclinesKind, What: kind})
		}
	}
	return list
}

// waits says what is taken of hubs and not started now, by the lanes and accounts of this host.
func waits(f backlog.ForHubs) (list []commands.Decline) {
	if f.Held != nil {
		list = append(list, commands.Decline{Code: commands.DeclinesLane, What: string(commands.SpawnKind), Since: max(0, f.Held.UnixMilli())})
	}
	if f.Limited > 0 {
		list = append(list, commands.Decline{Code: commands.DeclinesLimit, What: string(commands.SpawnKind)})
	}
	return list
}
