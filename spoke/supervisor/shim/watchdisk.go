package shim

import (
	"os"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/disk"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

const (
	// diskLook is how often the file systems are looked at where little is left, idleLook where
	// it takes long to take it at diskSpeed or fileSpeed, in a second.
	diskLook  = 2 * time.Second
	idleLook  = 10 * time.Second
	diskSpeed = 8 << 30
	fileSpeed = 500_000
	// wholeLook is when all files are counted again, whatever the file systems say: others
	// may have given back what the agent took.
	wholeLook = 30 * time.Second
	// urgentShare bounds what counting costs while the limit may be missed, as lookShare does else.
	urgentShare = 10
)

// A diskWatch counts the files of an agent when they may have become too many: they cannot have
// grown by more than their file systems have.
type diskWatch struct {
	most  disk.Usage
	last  disk.Usage // what was counted
	may   disk.Usage // what that may have become
	used  disk.Usage // of the file systems, before that
	whole bool       // all of that is told
	at    time.Time  // when that was; zero = never
	costs time.Duration
}

// watchDisk counts files where there is a limit.
func (s *shim) watchDisk() {
	w := &diskWatch{most: disk.Usage{Bytes: s.Limits.Disk, Inodes: s.Limits.Inodes}}
	if w.most != (disk.Usage{}) && len(s.Counted.Dirs) > 0 {
		go s.watch(diskLook, func() (attempt.Breach, time.Duration) { return s.lookAtDisk(w), w.again() })
	}
}

// due reports whether files have to be counted, given what their file systems hold.
func (w *diskWatch) due(used disk.Usage, whole bool) bool {
	since := time.Since(w.at)
	if w.at.IsZero() || !whole || !w.whole {
		return since >= lookShare*w.costs
	}
	w.may = disk.Usage{Bytes: w.last.Bytes + max(0, used.Bytes-w.used.Bytes), Inodes: w.last.Inodes + max(0, used.Inodes-w.used.Inodes)}
	if above(w.may.Bytes, w.most.Bytes) || above(w.may.Inodes, w.most.Inodes) {
		return since >= urgentShare*w.costs
	}
	return since >= max(wholeLook, lookShare*w.costs)
}

// again is when the file systems have to be looked at again: what the agent has left may be
// taken by then, and not much before.
func (w *diskWatch) again() time.Duration {
	again := idleLook
	if w.most.Bytes > 0 {
		again = reached(w.most.Bytes-w.may.Bytes, diskSpeed, diskLook, again)
	}
	if w.most.Inodes > 0 {
		again = reached(w.most.Inodes-w.may.Inodes, fileSpeed, diskLook, again)
	}
	return again
}

// above reports whether a limit is missed, where 0 is none.
func above(n, most int64) bool { return most > 0 && n > most }

func (s *shim) lookAtDisk(w *diskWatch) attempt.Breach {
	used, whole, err := disk.Used(slices.Concat(s.Counted.Dirs, s.Counted.Shared))
	if whole = whole && err == nil; !w.due(used, whole) {
		return attempt.Breach{}
	}
	began := time.Now()
	c := s.countDisk(w.most)
	w.last, w.may, w.used, w.whole, w.at, w.costs = c.Usage, c.Usage, used, whole, time.Now(), time.Since(began)
	switch {
	case above(c.Bytes, w.most.Bytes):
		return attempt.Breach{Limit: attempt.DiskLimit, Unit: attempt.Bytes, Allowed: w.most.Bytes, Measured: c.Bytes}
	case above(c.Inodes, w.most.Inodes):
		return attempt.Breach{Limit: attempt.DiskLimit, Unit: attempt.Inodes, Allowed: w.most.Inodes, Measured: c.Inodes}
	case c.Deep:
		return attempt.Breach{Limit: attempt.DiskLimit, Unit: attempt.Levels, Allowed: disk.MaxLevels, Measured: disk.MaxLevels + 1}
	}
	return attempt.Breach{}
}

// countDisk counts what is in the agent's directories, what its user has in shared ones, and
// what its processes have open without a name.
func (s *shim) countDisk(most disk.Usage) *disk.Count {
	c := &disk.Count{Most: most, Owner: -1, Stop: s.leaving}
	for _, dir := range s.Counted.Dirs {
		_ = c.Below(dir) // the agent may have removed it
	}
	if user := s.Confine.User.ID; user != 0 {
		c.Owner = user
		for _, dir := range s.Counted.Shared {
			_ = c.Below(dir) // not every host has each of them
		}
	}
	if taken, err := tree.Measure(os.Getpid()); err == nil {
		c.Owner = -1
		c.Held(taken.Pids)
	}
	return c
}

// leaving reports whether nobody wants to know any more.
func (s *shim) leaving() bool {
	select {
	case <-s.ending:
		return true
	default:
		return false
	}
}
