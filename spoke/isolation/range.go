package isolation

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

const (
	lastUser    = 1<<32 - 2 // the one after it is none
	longestLine = 64 << 20  // of a database of users: a group may have many members
	nobody      = 65534     // who the kernel shows for users that a namespace does not have; the next is none, in 16 bits
)

// checkRange refuses users that there are not, and those that somebody has, or may get. It asks no other instance.
func checkRange(first int64) error {
	if first < 1 || first > lastUser-rangeUsers+1 { // before the sum, which has an end
		return fmt.Errorf("there are no %d users from %d on", rangeUsers, first)
	}
	last := first + rangeUsers - 1
	if first <= nobody+1 && nobody <= last {
		return fmt.Errorf("of the users from %d to %d the kernel reserves %d and %d", first, last, nobody, nobody+1)
	}
	if err := etc.checkFree(first, last); err != nil {
		return err
	}
	return checkMapped(first, last)
}

// databases is the directory of the databases of users.
type databases string

const etc databases = "/etc"

// taken is the error of users that somebody has, or may get. Any other error says that this cannot be told now.
type taken string

func (t taken) Error() string { return string(t) }

// has reports whether somebody has a user, or may get it.
func (d databases) has(id int64) (bool, error) {
	err := d.checkFree(id, id)
	if _, is := errors.AsType[taken](err); is {
		return true, nil
	}
	return false, err
}

// checkFree refuses users that are in one of the databases, with the error taken.
func (d databases) checkFree(first, last int64) error {
	if err := d.checkNamed(first, last); err != nil {
		return err
	}
	return d.checkGivenAway(first, last)
}

// checkNamed refuses what is in the databases of users and groups.
func (d databases) checkNamed(first, last int64) error {
	for _, db := range []struct {
		file   string
		fields []int
	}{{d.file("passwd"), []int{2, 3}}, {d.file("group"), []int{2}}} {
		err := eachLine(db.file, func(f []string) error {
			for _, i := range db.fields {
				if n, err := strconv.ParseInt(f[min(i, len(f)-1)], 10, 64); err == nil && first <= n && n <= last {
					return taken(fmt.Sprintf("%d is in %s", n, db.file))
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// checkGivenAway refuses what people may give to containers.
func (d databases) checkGivenAway(first, last int64) error {
	for _, file := range []string{d.file("subuid"), d.file("subgid")} {
		err := eachLine(file, func(f []string) error {
			if len(f) < 3 {
				return nil
			}
			from, err := strconv.ParseInt(f[1], 10, 64)
			count, err2 := strconv.ParseInt(f[2], 10, 64)
			if err == nil && err2 == nil && from <= last && first-from < count {
				return taken(fmt.Sprintf("users from %d are given away in %s", from, file))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// checkUnused refuses users that something runs as.
func checkUnused(first int64) error {
	running, err := supervisor.RunningUsers(first, first+rangeUsers-1)
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

func (d databases) file(name string) string { return filepath.Join(string(d), name) }

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
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		if err := see(strings.Split(lines.Text(), ":")); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("looking which users there are: reading %s: %w", file, err)
	}
	return nil
}
