package isolation

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

const (
	firstUser  = 1_879_048_192 // the first that neither people, nor services, nor containers get by convention
	rangeUsers = 4096          // of an instance: the reaper and one for each agent
	ranges     = 64            // that are looked at

	usersFile  = "agent-users"        // in the data directory: the first of the range
	beforeFile = "agent-users-before" // there, too: those of all earlier ones, a line each
)

// users are a range of users of this host that nothing else has.
type users struct {
	first int64
	was   int64  // the first of the range that this instance had before, where that is another; 0 = none
	why   error  // that range is not to be had; nil where another one was named
	claim *claim // locked: no other instance of this host has the range

	mu    sync.Mutex // guards what follows
	taken map[int64]bool
	given map[int64]bool // those of taken that this process gave to an agent, or that a live one has which it adopted
	next  int64
}

// openUsers claims the range that is on record or named, or one that is free.
func openUsers(dir string, named int64) (*users, error) {
	recorded, err := recordedUsers(dir)
	if err != nil {
		return nil, err
	}
	candidates := []int64{named}
	if named == 0 {
		candidates = nil
		if recorded != 0 {
			candidates = append(candidates, recorded)
		}
		for n := range int64(ranges) {
			candidates = append(candidates, firstUser+n*rangeUsers)
		}
	}
	var refused, lost error
	for _, first := range candidates {
		claim, err := claimUsers(dir, first, first == recorded)
		if err != nil {
			if refused = errors.Join(refused, err); first == recorded {
				lost = err
			}
			continue
		}
		if first != recorded {
			if err := noteBefore(dir, recorded); err != nil {
				return nil, errors.Join(err, claim.Close())
			}
			if err := os.WriteFile(filepath.Join(dir, usersFile), fmt.Appendln(nil, first), 0o600); err != nil {
				return nil, errors.Join(fmt.Errorf("recording the users of agents: %w", err), claim.Close())
			}
		}
		u := &users{first: first, claim: claim, taken: map[int64]bool{}, given: map[int64]bool{}, next: rand.Int64N(rangeUsers - 1)} // not the same ones after each start
		if recorded != first {
			u.was, u.why = recorded, lost
		}
		if err := u.keepEarlier(dir); err != nil {
			return nil, errors.Join(err, claim.Close())
		}
		return u, nil
	}
	return nil, fmt.Errorf("no range of %d users is free for agents; name the first of one under agent_users in the policy: %w", rangeUsers, refused)
}

func recordedUsers(dir string) (int64, error) {
	raw, err := os.ReadFile(filepath.Join(dir, usersFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading which users agents have: %w", err)
	}
	first, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
	if err != nil || first <= 0 {
		return 0, fmt.Errorf("%s does not name a user; remove it while no agent runs", filepath.Join(dir, usersFile))
	}
	return first, nil
}

// noteBefore keeps on record that this instance had a range: agents of it may go on with their users.
func noteBefore(dir string, first int64) error {
	before, err := usersBefore(dir)
	if first == 0 || err == nil && slices.Contains(before, first) {
		return nil
	}
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, beforeFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(f, first)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("recording the users that agents had before: %w", err)
	}
	return nil
}

// usersBefore are the first users of the ranges that the instance in dir had before the one that it has.
func usersBefore(dir string) (firsts []int64, err error) {
	raw, err := os.ReadFile(filepath.Join(dir, beforeFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading which users agents had before: %w", err)
	}
	for _, line := range strings.Fields(string(raw)) {
		first, err := strconv.ParseInt(line, 10, 64)
		if err != nil || first <= 0 {
			return nil, fmt.Errorf("%s does not name a user on each line; remove it while no agent runs", filepath.Join(dir, beforeFile))
		}
		firsts = append(firsts, first)
	}
	return firsts, nil
}

func (u *users) reaper() int64 { return u.first }

func (u *users) user(id int64) supervisor.User { return supervisor.User{ID: id, Reaper: u.reaper()} }

// holds reports whether a user is one of an agent's.
func (u *users) holds(id int64) bool { return u.first < id && id < u.first+rangeUsers }

// take returns a user that no agent has. They go round, so that what one has left, however
// it was missed, is not soon another's.
func (u *users) take() (int64, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for range rangeUsers - 1 {
		u.next = u.next%(rangeUsers-1) + 1
		if id := u.first + u.next; !u.taken[id] {
			u.taken[id], u.given[id] = true, true
			return id, nil
		}
	}
	return 0, fmt.Errorf("all %d users for agents are taken", rangeUsers-1)
}

// keepEarlier keeps the users from others that agents of an earlier process have: by what
// they run and by the homes that are theirs.
func (u *users) keepEarlier(dir string) error {
	running, err := supervisor.RunningUsers(u.first, u.first+rangeUsers-1)
	if err != nil {
		return err
	}
	for id := range running {
		u.keep(id)
	}
	homes, _ := filepath.Glob(filepath.Join(dir, "agents", "*", "*", "home")) // the pattern is well formed
	for _, home := range homes {
		if id, _ := ownerOf(home); u.holds(id) { // what cannot be told now and runs is kept already
			u.keep(id)
		}
	}
	return nil
}

// ownerOf is who owns a file; -1 = there is none, or one that an agent with the user of this process has closed. The error says that it cannot
// be told now.
func ownerOf(path string) (int64, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
		return -1, nil
	case err != nil:
		return -1, fmt.Errorf("looking which user an agent has: %w", err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int64(st.Uid), nil
	}
	return -1, nil
}

// keep marks a user as taken that an earlier process gave to an agent.
func (u *users) keep(id int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.taken[id] = true
}

// adopted notes whose a user is: that of a live agent which an earlier process started.
func (u *users) adopted(id int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.taken[id], u.given[id] = true, true
}

// gave reports whether it is known whose a user is: this process gave it to an agent that has it, or adopted that.
func (u *users) gave(id int64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.given[id]
}

func (u *users) release(id int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.taken, id)
	delete(u.given, id)
}
