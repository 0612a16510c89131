package supervisor

import (
	"fmt"
	"strings"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

// A Kernel is what that of this host holds of an agent.
type Kernel struct {
	Level  string // as [Level] says
	why    string // it is not "cgroup"
	unheld []tree.Missing
	none   bool // no group can be made at all: then that is why nothing is held, too
}

// delegate is what mends most of what a kernel does not hold.
const delegate = "to have it, run the spoke as a unit of systemd with Delegate=yes and DelegateSubgroup=spoke, or as root where cgroup v2 is mounted and has the controllers"

// unheld tries out which limits a group of this host would not hold, and whether there is none.
func unheld() (missing []tree.Missing, none bool) {
	all := Limits{Memory: 1 << 40, Pids: 1 << 20, CPUs: 1000}
	group, missing, err := tree.NewGroup(newMarker(), all)
	if err != nil {
		return tree.Unheld(all, err), true
	}
	_ = group.Remove() // it is empty, and costs a name
	return missing, false
}

// Kill says how an agent is ended, and why so.
func (k Kernel) Kill() string {
	if k.Level == attempt.LevelCgroup {
		return k.Level + ": the kernel ends all of an agent at once"
	}
	return fmt.Sprintf("%s: the shim looks for the processes of an agent and ends each, as no cgroup can be used here: %s; %s", k.Level, k.why, delegate)
}

// Limits says which limits the kernel holds, and what becomes of the others. Of agents with
// users of their own it counts the processes in any case. What [Kernel.Kill] says of the reason is
// not said again.
func (k Kernel) Limits(users bool) string {
	var measured, not []tree.Missing
	for _, m := range k.unheld {
		switch {
		case m.Limit == tree.PidsLimit && users:
		case m.Limit == tree.PidsLimit, m.Limit == tree.MemoryLimit:
			measured = append(measured, m)
		default:
			not = append(not, m)
		}
	}
	if len(measured)+len(not) == 0 {
		return "memory, processes and processors are held by the kernel"
	}
	var words []string
	if len(measured) > 0 {
		words = append(words, "measured several times a second, as the kernel does not hold them here: "+k.named(measured))
	}
	if len(not) > 0 {
		words = append(words, "not held at all: "+k.named(not))
	}
	if k.none {
		return strings.Join(append(words, "the reason is that of the kill level"), "; ")
	}
	return strings.Join(append(words, delegate), "; ")
}

// named names limits, with the reason behind those that have the same one.
func (k Kernel) named(list []tree.Missing) string {
	var words []string
	for i, m := range list {
		text := string(m.Limit)
		if last := i+1 == len(list) || list[i+1].Why != m.Why; last && !k.none {
			text += " (" + m.Why + ")"
		}
		words = append(words, text)
	}
	return strings.Join(words, ", ")
}
