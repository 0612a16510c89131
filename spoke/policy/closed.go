package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

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

// closedOn finds the first directory on an absolute way that not every user may pass.
func closedOn(way string) (at string, mode fs.FileMode) {
	walk(way, func(on string, m fs.FileMode) bool {
		if m.IsDir() && m&0o001 == 0 {
			at, mode = on, m.Perm()
		}
		return at == ""
	})
	return at, mode
}
