package spoke

import (
	"context"
	"fmt"
	"syscall"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// A Room is what is free on a disk, or has to be.
type Room struct {
	Bytes  int64
	Inodes int64 // -1 = the file system makes them as they are needed
}

// Free returns what this user may still take of the file system of dir.
func Free(dir string) (Room, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return Room{}, fmt.Errorf("looking at the free space of %s: %w", dir, err)
	}
	free := Room{int64(st.Bavail) * st.Bsize, -1}
	if st.Files > 0 {
		free.Inodes = int64(st.Ffree)
	}
	return free, nil
}

// Reserve is what has to be free in the file system of a data directory. A spoke starts nothing
// new below it, so that what runs, its database and its log have room.
func Reserve(rules *policy.Policy) Room {
	return Room{rules.Limits.ReserveBytes(), rules.Limits.ReserveFiles()}
}

// Lack says what free lacks of a reserve, and nothing when that is there.
func (r Room) Lack(free Room) string {
	switch {
	case free.Bytes < r.Bytes:
		return fmt.Sprintf("has %d MiB free, and nothing is started below %d MiB (limits.reserve)", free.Bytes>>20, r.Bytes>>20)
	case free.Inodes >= 0 && free.Inodes < r.Inodes:
		return fmt.Sprintf("has room for %d more files, and nothing is started below %d (limits.reserve_files)", free.Inodes, r.Inodes)
	}
	return ""
}

// short says what the disk of dir lacks now, and nothing when there is room.
func short(dir string, reserve Room) string {
	free, err := Free(dir)
	if err != nil {
		return ""
	}
	return reserve.Lack(free)
}

// lacksRoom says what the disk lacks now by the policy in force; "" = nothing.
func (s *Spoke) lacksRoom() string { return short(s.Dir, Reserve(s.Policy.Now())) }

// hasRoomFor reports whether the disk keeps its reserve with so many bytes more. A disk that cannot be looked at shows what it lacks when it is
// written to.
func (s *Spoke) hasRoomFor(size int64) bool {
	free, err := Free(s.Dir)
	free.Bytes -= size
	return err != nil || Reserve(s.Policy.Now()).Lack(free) == ""
}

// hasRoom reports whether something new may be started, and says when that changes, to the
// hubs, too. Only the goroutine that claims may call it.
func (s *Spoke) hasRoom(ctx context.Context) bool {
	lack := s.lacksRoom()
	if full := lack != ""; full != s.full {
		s.full = full
		if full {
			s.Log.WarnContext(ctx, "nothing new is started until there is room on the disk", "why", "the disk of "+s.Dir+" "+lack)
		} else {
			s.Log.InfoContext(ctx, "there is room on the disk again; agents are started")
		}
		s.board.Beat()
	}
	return !s.full
}

// startsNone is what a hub is told where nothing is started; "" = agents are. Where the data
// directory is, is no hub's business.
func (s *Spoke) startsNone() string {
	if lack := s.lacksRoom(); lack != "" {
		return commands.CleanReason("its disk " + lack)
	}
	return ""
}

// Reserve is what has to be free by the policy in force.
func (s *Spoke) Reserve() Room { return Reserve(s.Policy.Now()) }

// CheckDisk says whether the file system of the data directory dir has what is to stay free
// there; nil = what is to stay free where no policy says otherwise.
func CheckDisk(dir string, reserve func() Room) control.Check {
	if reserve == nil {
		reserve = func() Room { return Reserve(&policy.Policy{}) }
	}
	free, err := Free(dir)
	if lack := reserve().Lack(free); err == nil && lack != "" {
		err = fmt.Errorf("that of %s %s", dir, lack)
	}
	return control.NewCheck("disk", err)
}
