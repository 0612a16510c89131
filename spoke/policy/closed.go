package policy

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
)

// unusable says why no agent can run in dir and why one with the user that level gives it cannot enter it;
// "" = it can, or a fresh directory is made for it.
func unusable(dir, level string) string {
	if dir == "" {
		return ""
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "there is no directory " + dir
	case err != nil:
		return "the directory of the order cannot be entered: " + err.Error()
	case !info.IsDir():
		return dir + " is not a directory"
	case !hasUser(level):
		return ""
	}
	return closed(dir, "directory")
}

// unreachable says why an agent with the user that level gives it cannot execute a program that the spoke
// could; "" = it can.
func unreachable(program, level string) string {
	info, err := os.Stat(program)
	if !filepath.IsAbs(program) || err != nil || !hasUser(level) {
		return ""
	}
	if why := closed(program, "program"); why != "" {
		return why
	}
	if mode := info.Mode().Perm(); mode&0o001 == 0 {
		return fmt.Sprintf("an agent with a user of its own may not execute %s (mode %#o); name another program, or run: chmod o+x %s", program, mode, program)
	}
	return ""
}

// hasUser reports whether agents of a level have users of their own. Where the level is not known, a
// spoke that is root gives them users.
func hasUser(level string) bool {
	return level == "" && os.Geteuid() == 0 || level != "" && commands.MeetsIsolation(level, commands.IsolationUser)
}

// closed says which directory keeps an agent with a user of its own from a kind of file; "" = none does.
func closed(path, kind string) string {
	at, mode := closedOn(path)
	if at == "" {
		return ""
	}
	return fmt.Sprintf("an agent with a user of its own may not enter %s (mode %#o), which leads to %s; name a %s that is open to every user, or run: chmod o+x %s", at, mode, path, kind, at)
}

// linksMost is how many links the kernel follows on one way.
const linksMost = 40

// closedOn goes an absolute way as the kernel does, through its links, and finds the first directory that
// not every user may pass.
func closedOn(way string) (at string, mode fs.FileMode) {
	at = "/"
	rest := strings.Split(way, "/")
	for links := 0; ; {
		info, err := os.Lstat(at)
		if err != nil {
			return "", 0 // it is missing, which is said otherwise
		}
		if mode = info.Mode(); mode.IsDir() && mode&0o001 == 0 {
			return at, mode.Perm()
		}
		if mode.Type() == fs.ModeSymlink {
			to, err := os.Readlink(at)
			if links++; err != nil || links > linksMost {
				return "", 0
			}
			rest = append(strings.Split(to, "/"), rest...)
			if at = filepath.Dir(at); filepath.IsAbs(to) {
				at = "/"
			}
		}
		if len(rest) == 0 {
			return "", 0
		}
		at = filepath.Join(at, cmp.Or(rest[0], "."))
		rest = rest[1:]
	}
}
