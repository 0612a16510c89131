// Package git runs the program git where nothing but what it is given decides what it does: no configuration of the host,
// no hooks, no filters of others, no network.
//
// What comes from elsewhere is taken in by [Git.Take] alone: the header of a bundle is read here, the objects are checked by
// git in a directory of their own, and become part of a repository when all of them are in order.
package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Oldest is the first version of git that is used: the oldest that the tests were run with.
const Oldest = "2.34"

const install = "install git " + Oldest + " or newer (Debian, Ubuntu: apt-get install git; Fedora, RHEL: dnf install git; Alpine: apk add git)"

// ErrNoGit says that there is no git on this host that can be used, and what to do.
var ErrNoGit = errors.New("no usable git")

// A Git is the program, and whose configuration it reads. Any number of goroutines may use it.
type Git struct {
	path    string
	version string
	home    []string // variables that lead to the operator's own configuration; nil of a neutral one
}

// Find looks for git on the PATH. What it returns reads no configuration but that of the repository it works in.
func Find(ctx context.Context) (*Git, error) {
	path, err := exec.LookPath("git")
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: git is not on the PATH: %s", ErrNoGit, install)
	}
	return At(ctx, path)
}

// At is Find for the program at a path.
func At(ctx context.Context, path string) (*Git, error) {
	g := &Git{path: path}
	text, err := g.Output(ctx, Call{Args: []string{"version"}})
	if err != nil {
		return nil, fmt.Errorf("%w: %s cannot be run: %w: %s", ErrNoGit, path, err, install)
	}
	g.version = strings.TrimPrefix(strings.TrimSpace(text), "git version ")
	if !enough(g.version, Oldest) {
		return nil, fmt.Errorf("%w: %s is of version %.40q: %s", ErrNoGit, path, g.version, install)
	}
	return g, nil
}

var numbers = regexp.MustCompile(`^(\d+)\.(\d+)`)

// OldestToMerge is the first version of git that merges without a working tree.
const OldestToMerge = "2.38"

// ErrCannotMerge says that git is older than [OldestToMerge], and what to do.
var ErrCannotMerge = errors.New("this git cannot merge without a working tree")

// enough reports whether a version, as "2.39.5 (Apple Git-154)", is not older than another.
func enough(version, oldest string) bool {
	has, want := numbers.FindStringSubmatch(version), numbers.FindStringSubmatch(oldest)
	if has == nil {
		return false
	}
	for i := 1; i <= 2; i++ {
		h, _ := strconv.Atoi(has[i])
		w, _ := strconv.Atoi(want[i])
		if h != w {
			return h > w
		}
	}
	return true
}

// Version is what git says of itself.
func (g *Git) Version() string { return g.version }

// Operator is g with the configuration of the user of this process: for his own repositories, which he has configured so that
// files are read in one way. Hooks and programs that only speed git up are not run all the same.
func (g *Git) Operator() *Git {
	own := &Git{g.path, g.version, []string{}}
	for _, name := range []string{"HOME", "XDG_CONFIG_HOME"} {
		if value, ok := os.LookupEnv(name); ok {
			own.home = append(own.home, name+"="+value)
		}
	}
	return own
}

// settings are those of every run. They win over what a repository says.
var settings = []string{
	"core.hooksPath=/dev/null", "core.fsmonitor=false", "core.pager=cat", "core.editor=false", "core.askPass=", "credential.helper=",
	"core.splitIndex=false", "core.safecrlf=false", "core.quotePath=true", "core.symlinks=true", "core.alternateRefsCommand=false",
	"commit.gpgSign=false", "tag.gpgSign=false", "log.showSignature=false", "protocol.allow=never", "submodule.recurse=false",
	"gc.auto=0", "gc.autoDetach=false", "maintenance.auto=false", "advice.detachedHead=false", "init.defaultBranch=main", "color.ui=false",
	"transfer.fsckObjects=true", "core.fsync=committed", "fetch.writeCommitGraph=false",
	// Memory: what is larger than the threshold is streamed.
	"core.bigFileThreshold=" + bigFile, "pack.threads=1", "index.threads=1", "grep.threads=1", "checkout.workers=1", "pack.windowMemory=64m", "pack.deltaCacheSize=32m",
	"core.packedGitLimit=512m", "core.packedGitWindowSize=32m", "core.deltaBaseCacheLimit=32m",
}

const bigFile = "8m"

// environ is built of nothing: what this process was given is for it alone.
func (g *Git) environ(c Call) []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC", "TERM=dumb",
		"GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=false", "SSH_ASKPASS=false", "GIT_SSH_COMMAND=false", "GIT_PAGER=cat", "GIT_EDITOR=false",
		"GIT_OPTIONAL_LOCKS=0", "GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=none", "GIT_LITERAL_PATHSPECS=1", "GIT_ADVICE=0",
	}
	if g.home != nil {
		env = append(env, g.home...)
	} else {
		env = append(env, "HOME=/nonexistent", "XDG_CONFIG_HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1")
	}
	for i, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, value))
	}
	env = append(env, fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(settings)))
	if c.GitDir != "" {
		env = append(env, "GIT_DIR="+c.GitDir)
	}
	return append(env, c.Env...)
}

// merges refuses a git that is too old to merge.
func (g *Git) merges() error {
	if enough(g.version, OldestToMerge) {
		return nil
	}
	return fmt.Errorf("%w: %s is of version %.40q, and %s or newer is needed", ErrCannotMerge, g.path, g.version, OldestToMerge)
}

// Path is where the program is.
func (g *Git) Path() string { return g.path }
