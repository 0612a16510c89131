package isolation

import (
	"cmp"
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
	if id == 0 || i.users != nil && i.users.holds(id) || i.claimedElsewhere(id) {
		return 0, nil
	}
	if has, err := cmp.Or(i.etc, etc).has(id); err != nil || has {
		return 0, err
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
	if len(firsts) == 0 {
		return nil
	}
	strange, err := supervisor.AnyUser(func(id int64) bool {
		return slices.ContainsFunc(firsts, func(first int64) bool { return first < id && id < first+rangeUsers }) && !i.knows(id)
	})
	if err == nil && strange != 0 {
		err = fmt.Errorf("processes run as user %d, and whose they are cannot be told; end them, or mend the disk", strange)
	}
	return err
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

// Adopted notes that a live agent which an earlier process started has a user, or runs as a former one: [Isolation.Idle] passes it by until [Isolation.Ended].
func (i *Isolation) Adopted(u supervisor.User, former int64) {
	if i.users != nil && u.ID != 0 {
		i.users.adopted(u.ID)
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.formers == nil {
		i.formers = map[int64]bool{}
	}
	if id := cmp.Or(u.ID, former); id != 0 {
		i.formers[id] = true
	}
}

// Ended forgets what [Isolation.Adopted] has noted, but for a user of the range: that is known until it is taken back.
func (i *Isolation) Ended(u supervisor.User, former int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.formers, cmp.Or(u.ID, former))
}

// knows reports whether it is known which agent has a user.
func (i *Isolation) knows(id int64) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.formers[id] || i.Gave(id)
}

// Gave reports whether this process has given a user to an agent that has it, or adopted that.
func (i *Isolation) Gave(id int64) bool { return i.users != nil && i.users.gave(id) }
