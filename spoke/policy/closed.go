package policy

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
)

// closed says which directory keeps an agent with a user of its own from dir; "" = none does, or
// agents have the user of the spoke. Where the level is not known, a spoke that is root gives them users.
func (p *Policy) closed(dir, level string) string {
	if dir == "" || level == "" && os.Geteuid() != 0 || level != "" && !commands.MeetsIsolation(level, commands.IsolationUser) {
		return ""
	}
	for _, way := range []string{filepath.Clean(dir), resolve([]string{dir})[0]} {
		if at, mode := closedOn(way); at != "" {
			return fmt.Sprintf("an agent with a user of its own may not enter %s (mode %#o), which leads to %s; name a directory that is open to every user, or run: chmod o+x %s", at, mode, dir, at)
		}
	}
	return ""
}

// closedOn finds the first directory on an absolute way, from the root on, that not every user may pass.
func closedOn(way string) (at string, mode fs.FileMode) {
	at = "/"
	for name := range strings.SplitSeq(way, "/") {
		at = filepath.Join(at, name)
		info, err := os.Stat(at)
		if err != nil || !info.IsDir() {
			return "", 0 // it is missing, which is said otherwise
		}
		if mode = info.Mode().Perm(); mode&0o001 == 0 {
			return at, mode
		}
	}
	return "", 0
}
