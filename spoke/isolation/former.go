package isolation

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
