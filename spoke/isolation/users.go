package isolation

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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

	usersFile = "agent-users" // in the data directory: the first of the range
)

// users are a range of users of this host that nothing else has.
type users struct {
	first int64
	was   int64    // the first of the range that this instance had before, where that is another; 0 = none
	why   error    // that range is not to be had; nil where another one was named
	claim *os.File // locked: no other instance of this host has the range

	mu    sync.Mutex // guards taken
	taken map[int64]bool
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
			if err := os.WriteFile(filepath.Join(dir, usersFile), fmt.Appendln(nil, first), 0o600); err != nil {
				return nil, errors.Join(fmt.Errorf("recording the users of agents: %w", err), claim.Close())
			}
		}
		u := &users{first: first, claim: claim, taken: map[int64]bool{}, next: rand.Int64N(rangeUsers - 1)} // not the same ones after each start
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

// checkRange refuses users that somebody else has, or may get.
func checkRange(first int64, ours bool) error {
	last := first + rangeUsers - 1
	if first < 1 || last > 1<<32-2 {
		return fmt.Errorf("there are no users from %d to %d", first, last)
	}
	within := func(n int64) bool { return first <= n && n <= last }
	for _, db := range []struct {
		file   string
		fields []int
	}{{"/etc/passwd", []int{2, 3}}, {"/etc/group", []int{2}}} {
		err := eachLine(db.file, func(f []string) error {
			for _, i := range db.fields {
				if n, err := strconv.ParseInt(f[min(i, len(f)-1)], 10, 64); err == nil && within(n) {
					return fmt.Errorf("%d is in %s", n, db.file)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, file := range []string{"/etc/subuid", "/etc/subgid"} {
		err := eachLine(file, func(f []string) error {
			if len(f) < 3 {
				return nil
			}
			from, err := strconv.ParseInt(f[1], 10, 64)
			count, err2 := strconv.ParseInt(f[2], 10, 64)
			if err == nil && err2 == nil && from <= last && first < from+count {
				return fmt.Errorf("users from %d are given away in %s", from, file)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := checkMapped(first, last); err != nil || ours {
		return err
	}
	running, err := supervisor.RunningUsers(first, last)
	if err == nil && len(running) > 0 {
		err = fmt.Errorf("processes run as %d", slices.Min(slices.Collect(maps.Keys(running))))
	}
	return err
}

// checkMapped refuses what is outside of this process's user namespace.
func checkMapped(first, last int64) error {
	for _, file := range []string{"/proc/self/uid_map", "/proc/self/gid_map"} {
		raw, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("looking which users there are: %w", err)
		}
		mapped := slices.ContainsFunc(strings.Split(string(raw), "\n"), func(line string) bool {
			var inside, outside, count int64
			n, _ := fmt.Sscan(line, &inside, &outside, &count)
			return n == 3 && inside <= first && last < inside+count
		})
		if !mapped {
			return fmt.Errorf("users from %d to %d are not in this container's %s", first, last, file)
		}
	}
	return nil
}

// eachLine calls see with the fields of each line of a user database.
func eachLine(file string, see func(fields []string) error) error {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking which users there are: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if err := see(strings.Split(lines.Text(), ":")); err != nil {
			return err
		}
	}
	return lines.Err()
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
			u.taken[id] = true
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
		if id := ownerOf(home); u.holds(id) {
			u.keep(id)
		}
	}
	return nil
}

// ownerOf is who owns a file; -1 = there is none.
func ownerOf(path string) int64 {
	info, err := os.Lstat(path)
	if err != nil {
		return -1
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int64(st.Uid)
	}
	return -1
}

// keep marks a user as taken that an earlier process gave to an agent.
func (u *users) keep(id int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.taken[id] = true
}

func (u *users) release(id int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.taken, id)
}
