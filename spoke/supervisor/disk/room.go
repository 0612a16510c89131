package disk

import (
	"syscall"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
)

// Used is what is taken of the file systems of some directories, whoever has taken it. Looking
// costs next to nothing. Not counted are inodes where a file system makes them as they are
// needed; then whole is false.
func Used(dirs []string) (used Usage, whole bool, err error) {
	seen := map[uint64]bool{}
	whole = true
	for _, dir := range dirs {
		var st syscall.Stat_t
		if err := syscall.Stat(dir, &st); err != nil {
			return Usage{}, false, plain.Wrap("looking at the file system of "+dir, err)
		}
		if seen[uint64(st.Dev)] {
			continue
		}
		seen[uint64(st.Dev)] = true
		var fs syscall.Statfs_t
		if err := syscall.Statfs(dir, &fs); err != nil {
			return Usage{}, false, plain.Wrap("looking at the file system of "+dir, err)
		}
		used.Bytes += int64(fs.Blocks-fs.Bfree) * int64(fs.Bsize)
		used.Inodes += int64(fs.Files - fs.Ffree)
		whole = whole && fs.Files > 0
	}
	return used, whole, nil
}
