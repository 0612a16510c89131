package isolation

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// Former returns who owns the directories of an agent where that is no user of this instance now, but may
// be the agent's all the same: it was started under an earlier range. 0 = nobody, or one that is known to be
// somebody else's: of people, of containers, or of another instance, which has claimed it when nothing ran as it.
// What runs as it may yet be another's, as of directories that were restored on another host: it is no reason to
// end anything.
func (i *Isolation) Former(d Dirs) int64 {
	id := d.User()
	if id == 0 || i.users != nil && i.users.holds(id) || checkNamed(id, id) != nil || checkGivenAway(id, id) != nil || i.claimedElsewhere(id) {
		return 0
	}
	return id
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

// Idle returns nil where nothing runs as a user that an agent of an earlier process of this instance may have, of its range or of the one
// before: what had a user of its own is gone then, whichever it was.
func (i *Isolation) Idle() error {
	var firsts []int64
	given := func(int64) bool { return false }
	if u := i.users; u != nil {
		firsts, given = []int64{u.first, u.was}, u.gave
	} else if first, err := recordedUsers(i.dir); err != nil {
		return err
	} else {
		firsts = []int64{first}
	}
	for _, first := range firsts {
		if first == 0 {
			continue
		}
		running, err := supervisor.RunningUsers(first+1, first+rangeUsers-1)
		if err != nil {
			return err
		}
		for id := range running {
			if !given(id) {
				return fmt.Errorf("processes run as user %d, and whose they are cannot be told; end them, or mend the disk", id)
			}
		}
	}
	return nil
}

// Keep keeps a user of the range from others, which an agent is seen to have.
func (i *Isolation) Keep(id int64) supervisor.User {
	i.users.keep(id)
	return i.users.user(id)
}
