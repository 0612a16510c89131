package tree

import (
	"errors"
	"io/fs"
	"os"

	"github.com/spawnmesh/spawnmesh/spoke/hostfault"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
)

// AnyMarked looks at all of this host for something of the attempts whose markers are given, and returns one that is found; "" = there is
// none. It is a shim, a process with our user and the marker, or a cgroup that is not empty. What has a user of its own and no cgroup is not
// found. An error is a fault of this host.
func AnyMarked(markers map[string]int) (found string, err error) {
	candidates, err := places()
	if hostfault.Is(err) {
		return "", err
	}
	for _, place := range candidates {
		groups, err := os.ReadDir(place)
		if hostfault.Is(err) {
			return "", plain.Wrap("looking for cgroups", err)
		}
		for _, g := range groups {
			if _, is := markers[g.Name()]; is && (&Group{plain.Join(place, g.Name())}).Populated() {
				return g.Name(), nil
			}
		}
	}
	is := func(marker string) bool {
		if _, is := markers[marker]; is {
			found = marker
		}
		return found != ""
	}
	err = untilFound(func() bool { return found != "" }, func(p Process) error {
		if p.Gone() || found != "" {
			return nil
		}
		if ours, err := RunsAs(p.Pid, int64(os.Getuid())); err != nil || !ours {
			return err
		}
		shim, err := ShimMarker(p.Pid)
		if err != nil && !Ended(err) && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		if !is(shim) {
			_, err = hasOneOf(p.Pid, is)
		}
		return faultOnly(err)
	})
	return found, err
}
