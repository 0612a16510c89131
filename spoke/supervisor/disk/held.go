package disk

import (
	"os"
	"strconv"
	"syscall"
)

// Held counts the files without a name that processes have open: they are in no directory, in
// memory too, and take what they take until they are closed.
func (c *Count) Held(pids []int) {
	for _, pid := range pids {
		if c.Ended() {
			return
		}
		path := "/proc/" + strconv.Itoa(pid) + "/fd"
		dir, err := os.Open(path)
		if err != nil {
			continue // it has ended, or hides
		}
		names, _ := dir.Readdirnames(-1)
		_ = dir.Close()
		for _, name := range names {
			var st syscall.Stat_t
			if syscall.Stat(path+"/"+name, &st) == nil && st.Nlink == 0 && st.Mode&syscall.S_IFMT == syscall.S_IFREG {
				c.add(&st)
			}
		}
	}
}
