package spoke

import (
	"context"
	"fmt"
	"syscall"
)

// MinFree is how many bytes have to be free in the file system of a data directory. A spoke
// starts nothing new below it, so that what runs, its database and its log have room.
const MinFree = 1 << 30

// Free returns how many bytes this user may still write to the file system of dir.
func Free(dir string) (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("looking at the free space of %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// short says why nothing new is started in dir, and nothing when there is room.
func short(dir string, minFree int64) string {
	free, err := Free(dir)
	if err != nil || free >= minFree {
		return ""
	}
	return fmt.Sprintf("the disk of %s has %d MiB free, and nothing is started below %d MiB", dir, free>>20, minFree>>20)
}

// hasRoom reports whether something new may be started, and says when that changes. Only
// the goroutine that claims may call it.
func (s *Spoke) hasRoom(ctx context.Context) bool {
	why := short(s.Dir, s.MinFree)
	if full := why != ""; full != s.full {
		s.full = full
		if full {
			s.Log.WarnContext(ctx, "nothing new is started until there is room on the disk", "why", why)
		} else {
			s.Log.InfoContext(ctx, "there is room on the disk again; agents are started")
		}
	}
	return !s.full
}
