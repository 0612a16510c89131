// Package isolation keeps agents to what is theirs: by a user of their own, by rules of the
// kernel (Landlock), or by both. A level is claimed only after a hostile program has tried it on
// this host and found it to hold.
//
// Under failure. A user is given to an agent while nothing of an earlier one is left, and taken
// back when nothing of the agent is; which user an agent has is what owns its home, so a process
// that comes later finds it. A user whose processes or files cannot be removed stays taken.
//
// Under concurrency. The methods may be called from any goroutine.
package isolation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/hostfault"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

func hasUser(level string) bool {
	return commands.MeetsIsolation(level, commands.IsolationUser)
}

func hasLandlock(level string) bool {
	return commands.MeetsIsolation(level, commands.IsolationLandlock)
}

func hasBubble(level string) bool {
	return commands.MeetsIsolation(level, commands.IsolationBubble)
}

// Isolation is what this host keeps agents apart by.
type Isolation struct {
	dir    string // of the instance's data
	users  *users // nil where there are none
	over   over
	bubble string // path of bubblewrap, "" where there is none

	etc databases // "" = etc; changed by tests

	mu      sync.Mutex // guards what follows
	faults  map[string]error
	formers map[int64]bool // those of live agents that were adopted, where users does not have them

	bindsOpen bool // of bubblewrap

	grants func(supervisor.Confine) supervisor.Confine // what is given of what was asked for; changed by tests
}

// Open claims users for agents where this process may give them, and tries out the levels. named
// is the first user of a range; 0 = one that is free.
func Open(dir string, named int64) *Isolation {
	i := &Isolation{dir: dir, faults: map[string]error{}, grants: func(c supervisor.Confine) supervisor.Confine { return c }}
	i.bubble, _ = exec.LookPath(bubblewrap) // without it the level has a fault
	i.bindsOpen = i.bubble != "" && bindsOpen(i.bubble)
	var users error
	if i.Root() {
		users = i.openUsers(named)
		for tries := 0; tries < 10 && hostfault.Is(users); tries++ { // every level with a user would stay away until a restart
			time.Sleep(500 * time.Millisecond)
			users = i.openUsers(named)
		}
	} else {
		users = errors.New("only a spoke that runs as root can give agents users of their own")
	}
	for _, level := range commands.IsolationLevels {
		switch {
		case hasUser(level):
			i.faults[level] = users
		case i.Root() && level != commands.IsolationNone:
			// It takes nothing of root away but paths: it would still change what it may not write.
			i.faults[level] = fmt.Errorf("root is not confined by %s alone", level)
		}
	}
	i.removeProbes() // of an earlier process
	for _, level := range commands.IsolationLevels {
		if level != commands.IsolationNone && i.faults[level] == nil {
			i.try(context.Background(), level)
		}
	}
	return i
}

// try tries out a level, and notes whether it holds.
func (i *Isolation) try(ctx context.Context, level string) (holds bool) {
	err := i.probe(ctx, level)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.faults[level] = err
	return err == nil
}

// errUntried says that a fault of this host has kept a level from being tried out.
var errUntried = errors.New("a fault of this host, which may pass: it is tried again")

// Untried are the levels that a fault of this host has kept from being tried out.
func (i *Isolation) Untried() (list []string) {
	for _, level := range commands.IsolationLevels {
		if errors.Is(i.Fault(level), errUntried) {
			list = append(list, level)
		}
	}
	return list
}

// TryAgain tries out the levels that a fault of this host has kept from it, until ctx ends, and returns those that hold.
func (i *Isolation) TryAgain(ctx context.Context) (hold []string) {
	i.removeProbes() // of the try that failed
	for _, level := range i.Untried() {
		if ctx.Err() == nil && i.try(ctx, level) {
			hold = append(hold, level)
		}
	}
	return hold
}

// openUsers claims users and lets them to where agents are.
func (i *Isolation) openUsers(named int64) error {
	users, err := openUsers(i.dir, named)
	if err != nil {
		return err
	}
	if err := admit(i.dir); err != nil {
		return errors.Join(err, users.claim.Close())
	}
	i.users = users
	return nil
}

// Close gives the users back. Agents that go on keep theirs: the next process of this instance
// claims the same.
func (i *Isolation) Close() error {
	if i.users == nil {
		return nil
	}
	i.over.close()
	i.Settle()
	return i.users.claim.Close()
}

// Fault says why a level does not hold here, nil when it does.
func (i *Isolation) Fault(level string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.faults[level]
}

// Root reports whether agents without a user of their own would be root.
func (i *Isolation) Root() bool { return os.Geteuid() == 0 }

// Range returns the first and the last user that agents may get, zeros where there are none.
func (i *Isolation) Range() (first, last int64) {
	if i.users == nil {
		return 0, 0
	}
	return i.users.first, i.users.first + rangeUsers - 1
}

// Before returns the first user of the range that this instance had before, where that is another
// one now, and why that is not to be had; else 0. Without a reason another range was named.
func (i *Isolation) Before() (first int64, why error) {
	if i.users == nil {
		return 0, nil
	}
	return i.users.was, i.users.why
}

// Dirs are the directories of an attempt that are its agent's, and Door, which it only reads; "" = it has none.
type Dirs struct {
	Work, Temp, Home string
	Door             string
}

func (d Dirs) list() []string { return []string{d.Work, d.Temp, d.Home} }

func (d Dirs) door() []string {
	if d.Door == "" {
		return nil
	}
	return []string{d.Door}
}

// User is who owns them, whether this instance has given them or another one, an agent's or not; 0 = the spoke, or nobody. The error says
// that it cannot be told now.
func (d Dirs) User() (int64, error) {
	for _, dir := range []string{d.Home, d.Temp, d.Work} { // the home says it, unless giving them was interrupted
		id, err := ownerOf(dir)
		if err != nil || id > 0 && id != int64(os.Geteuid()) {
			return max(id, 0), err
		}
	}
	return 0, nil
}

// Take confines a new agent at a level: it gets its directories, which are there, and what it
// reaches.
func (i *Isolation) Take(level string, d Dirs, r Reach) (supervisor.Confine, error) {
	if err := i.Fault(level); err != nil {
		return supervisor.Confine{}, fmt.Errorf("isolation %s does not hold on this host: %w", level, err)
	}
	return i.take(level, d, r)
}

// take is Take for a level that may yet have to be tried out.
func (i *Isolation) take(level string, d Dirs, r Reach) (supervisor.Confine, error) {
	if !hasUser(level) {
		return i.confine(level, supervisor.User{}, d, r)
	}
	id, err := i.users.take()
	if err != nil && i.Settle() { // some are over
		id, err = i.users.take()
	}
	if err != nil {
		return supervisor.Confine{}, err
	}
	if err := give(id, d.list()); err != nil {
		i.users.release(id)
		return supervisor.Confine{}, err
	}
	c, err := i.confine(level, i.users.user(id), d, r)
	if err != nil {
		i.users.release(id)
	}
	return c, err
}

// Again confines a further program as the agent was that Take confined, when that is over: it has its user and its
// directories, and reaches nothing beyond them and what every agent may read.
func (i *Isolation) Again(level string, user supervisor.User, d Dirs) (supervisor.Confine, error) {
	if err := i.Fault(level); err != nil {
		return supervisor.Confine{}, fmt.Errorf("isolation %s does not hold on this host: %w", level, err)
	}
	if !slices.Contains(commands.IsolationLevels, level) || hasUser(level) && user.ID == 0 {
		return supervisor.Confine{}, fmt.Errorf("it is not known how the agent was confined (level %q)", level)
	}
	return i.confine(level, user, d, Reach{})
}

// give makes directories a user's own. The home goes last: what owns it is the agent's.
func give(id int64, dirs []string) error {
	for _, dir := range dirs {
		if err := os.Lchown(dir, int(id), int(id)); err != nil {
			return fmt.Errorf("changing who owns the directories of an agent: %w", err)
		}
	}
	return nil
}

// takeBack makes the directories of an agent that is over those of the spoke, and closes them:
// files in them are still the user's, and programs of it with its rights. Nothing outside of them is
// changed, should the agent have put a link in the place of one.
func takeBack(dirs []string) error {
	for _, dir := range dirs {
		err := takeOne(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("taking back the directories of an agent: %w", err)
		}
	}
	return nil
}

func takeOne(dir string) error {
	info, err := os.Lstat(dir)
	if err == nil && info.IsDir() {
		err = os.Chmod(dir, 0o700)
	}
	if err != nil {
		return err
	}
	return os.Lchown(dir, 0, 0)
}

// Find returns the user of the agent whose home is given, and keeps it from others. Zero =
// it has none of its own. The error says that it cannot be told now.
func (i *Isolation) Find(home string) (supervisor.User, error) {
	if i.users == nil {
		return supervisor.User{}, nil
	}
	id, err := ownerOf(home)
	if err != nil || !i.users.holds(id) {
		return supervisor.User{}, err
	}
	i.users.keep(id)
	return i.users.user(id), nil
}

// admit makes sure that the users of agents can get to their directories and no further: the
// data directory and that of the agents may be passed through, and what is on the way to them
// has to allow that.
func admit(dir string) error {
	agents := filepath.Join(dir, "agents")
	if err := os.MkdirAll(agents, 0o711); err != nil {
		return fmt.Errorf("making the directory of the agents: %w", err)
	}
	for _, d := range []string{dir, agents} {
		if err := os.Chmod(d, 0o711); err != nil {
			return fmt.Errorf("letting agents through %s: %w", d, err)
		}
	}
	for parent := filepath.Dir(dir); ; parent = filepath.Dir(parent) {
		info, err := os.Stat(parent)
		if err != nil {
			return fmt.Errorf("letting agents to their directories: %w", err)
		}
		if info.Mode().Perm()&0o001 == 0 {
			return fmt.Errorf("%s (mode %#o) keeps the users of agents from their directories: use a data directory such as /var/lib/spawnmesh, or run: chmod o+x %s", parent, info.Mode().Perm(), parent)
		}
		if parent == filepath.Dir(parent) {
			return nil
		}
	}
}

// MakeDirs makes the directories of an attempt that are its agent's, and dir around them. At a
// level with users dir may be passed through.
func MakeDirs(level, dir string, d Dirs) error {
	mode := os.FileMode(0o700)
	if hasUser(level) {
		mode = 0o711
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return fmt.Errorf("making the directory of an attempt: %w", err)
	}
	for _, path := range []string{filepath.Dir(dir), dir} { // whatever the umask is
		if err := os.Chmod(path, mode); err != nil {
			return fmt.Errorf("making the directory of an attempt: %w", err)
		}
	}
	for _, path := range d.list() {
		if !strings.HasPrefix(path, dir+"/") {
			return fmt.Errorf("making the directory of an attempt: %s is not in %s", path, dir)
		}
		if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("making the directory of an attempt: %w", err)
		}
	}
	return nil
}
