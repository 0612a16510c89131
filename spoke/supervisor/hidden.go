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

// UserBelow is the user that what a live shim of an attempt has started runs as, where that is not the one of this process; 0 = there is none.
// It is that of its agent, where its directory does not say which: no agent can take another one. lives says that there is a shim.
func UserBelow(known Known) (user int64, lives bool, err error) {
	shims, err := known.saved().shims()
	if err != nil {
		return 0, false, err
	}
	own := int64(os.Getuid())
	for _, shim := range shims {
		below, err := tree.UsersBelow(shim.Pid)
		if err != nil {
			return 0, true, err
		}
		for id := range below {
			switch {
			case id == own:
			case user != 0 && user != id:
				return 0, true, fmt.Errorf("below the shim of an attempt processes run as %d and as %d", user, id)
			default:
				user = id
			}
		}
	}
	return user, len(shims) > 0, nil
}

// AnyLives looks once at this host for one of several attempts, which are numbered by their markers, of which something lives, and returns its
// number; 0 = of none. What has a user of its own and no cgroup is not found so.
func AnyLives(attempts map[string]int) (attempt int, err error) {
	marker, err := tree.AnyMarked(attempts)
	if err != nil {
		return 0, fmt.Errorf("looking for what is left of attempts: %w", err)
	}
	return attempts[marker], nil
}

// OtherBoot reports whether an attempt is one of an earlier run of the kernel: nothing of it lives.
func OtherBoot(known Known) bool { return known.saved().otherBoot() }
