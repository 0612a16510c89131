package isolation

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// Former returns who owns the directories of an agent where that is no user of this instance now, but may
// be the agent's all the same: it was started under an earlier range. 0 = nobody, or one that is known to be
// somebody else's: of people, of containers, or of another instance, which has claimed it when nothing ran as it.
// What runs as it may yet be another's, as of directories that were restored on another host: it is no reason to
// end anything. The error says that it cannot be told now whose they are.
func (i *Isolation) Former(d Dirs) (int64, error) {
	id, err := d.User()
	if err != nil && i.gives() {
		return 0, err
	}
	if id == 0 || i.users != nil && i.users.holds(id) || checkNamed(id, id) != nil || checkGivenAway(id, id) != nil || i.claimedElsewhere(id) {
		return 0, nil
	}
	return id, nil
}

// claimedElsewhere reports whether a user is of a range that another instance has claimed.
func (i *Isolation) claimedElsewhere(id int64) bool {
	names, _ := filepath.Glob(filepath.Join(claimsDir, "users-*")) // the pattern is well formed
	for _, name := range names {
		first, err := strconv.ParseInt(strings.TrimPrefix(filepath.Base(name), "users-"), 10, 64)
		if err != nil || id < first || first+rangeUsers <= id {
			continue
		}
		owner, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		there, err := os.Stat(string(owner))
		here, err2 := os.Stat(i.dir)
		if err == nil && err2 == nil && !os.SameFile(there, here) {
			return true
		}
	}
	return false
}

// gives reports whether an agent of this instance may have a user of its own.
func (i *Isolation) gives() bool {
	firsts, err := i.firsts()
	return err != nil || len(firsts) > 0
}

// firsts are the first users of all ranges that this instance has or had, and that no other one has claimed since.
func (i *Isolation) firsts() (list []int64, err error) {
	recorded, err := recordedUsers(i.dir)
	if err != nil {
		return nil, err
	}
	before, err := usersBefore(i.dir)
	if err != nil {
		return nil, err
	}
	before = append(before, recorded)
	if i.users != nil {
		before = append(before, i.users.first)
	}
	slices.Sort(before)
	for _, first := range slices.Compact(before) {
		if first != 0 && !i.claimedElsewhere(first) {
			list = append(list, first)
		}
	}
	return list, nil
}

// Idle returns nil where nothing runs as a user that an agent of this instance may have, of its range or of an earlier one, unless it is known
// whose it is: what had a user of its own is gone then, whichever it was.
func (i *Isolation) Idle() error {
	firsts, err := i.firsts()
	if err != nil {
		return err
	}
	for _, first := range firsts {
		running, err := supervisor.RunningUsers(first+1, first+rangeUsers-1)
		if err != nil {
			return err
		}
		for id := range running {
			if i.users == nil || !i.users.gave(id) {
				return fmt.Errorf("processes run as user %d, and whose they are cannot be told; end them, or mend the disk", id)
			}
		}
	}
	return nil
}

// Keep keeps a user from others that an agent is seen to have. It is a former one where it is of no range that is this instance's.
func (i *Isolation) Keep(id int64) (user supervisor.User, former int64) {
	firsts, _ := i.firsts() // what they cannot tell is a former one
	for _, first := range firsts {
		if first < id && id < first+rangeUsers {
			if i.users != nil {
				i.users.keep(id)
			}
			return supervisor.User{ID: id, Reaper: first}, 0
		}
	}
	return supervisor.User{}, id
}

// Adopted notes that a live agent which an earlier process started has a user: [Isolation.Idle] passes it by.
func (i *Isolation) Adopted(u supervisor.User) {
	if i.users != nil && u.ID != 0 {
		i.users.adopted(u.ID)
	}
}
