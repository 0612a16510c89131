package supervisor

import (
	"fmt"
	"os"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

// HasGroup reports whether an attempt has a cgroup: what is in it is found whatever user it has. Without one only the user of an agent that has
// one of its own leads to what it has started.
func HasGroup(known Known) (bool, error) {
	group, err := tree.FindGroup(known.Marker, known.Shim.Cgroup)
	return group != nil, err
}

// UserBelow is the user from first to last that what a live shim of an attempt has started runs as, 0 where there is none: that of its
// agent, where its directory does not say which. A shim has the user of this process: no agent with another one is taken for it.
func UserBelow(known Known, first, last int64) (user int64, err error) {
	shims, err := known.saved().shims()
	if err != nil {
		return 0, err
	}
	for _, shim := range shims {
		if own, err := tree.RunsAs(shim.Pid, int64(os.Getuid())); err != nil || !own {
			return 0, fmt.Errorf("process %d looks like a shim and has another user (%w)", shim.Pid, err)
		}
		below, err := tree.UsersBelow(shim.Pid, first, last)
		if err != nil {
			return 0, err
		}
		for id := range below {
			if user != 0 && user != id {
				return 0, fmt.Errorf("below the shim of an attempt processes run as %d and as %d", user, id)
			}
			user = id
		}
	}
	return user, nil
}
