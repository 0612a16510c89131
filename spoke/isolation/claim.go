package isolation

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	claimsDir = "/run/spawnmesh"
	lookedAt  = time.Second // that another instance looks at a range, at most, before it leaves it
)

// claimFile says who has the range from a first user on.
func claimFile(first int64) string {
	return filepath.Join(claimsDir, "users-"+strconv.FormatInt(first, 10))
}

// claimUsers makes a range this process's own. A range on record may have running agents. The file says which
// instance it is: while that one does not run nothing is locked, and its agents may go on.
func claimUsers(dir string, first int64, ours bool) (*claim, error) {
	if err := checkRange(first); err != nil {
		return nil, err // and nothing is written of it
	}
	if err := os.MkdirAll(claimsDir, 0o755); err != nil {
		return nil, fmt.Errorf("claiming users for agents: %w", err)
	}
	opened, err := os.OpenFile(claimFile(first), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("claiming users for agents: %w", err)
	}
	f := &claim{opened}
	patience := time.Duration(0)
	if ours {
		patience = lookedAt
	}
	err = lockClaim(f, patience)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("users from %d are those of another instance", first)
	}
	if err == nil {
		err = checkClaimed(f, dir, first)
	}
	if err == nil && !ours {
		err = checkUnused(first)
	}
	if err == nil {
		err = noteClaim(f, dir)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// A claim is the file of a range, and its lock.
type claim struct{ *os.File }

// Close lets go of the range. A program that is just being started has the file for a moment longer, so the lock does
// not end with this process's own.
func (c *claim) Close() error {
	return errors.Join(unix.Flock(int(c.Fd()), unix.LOCK_UN), c.File.Close())
}

// lockClaim locks a claim, and tries again for a while: an instance that looks for a free range holds the lock of each
// one that it looks at, also of those that it then leaves to their owners.
func lockClaim(claim *claim, patience time.Duration) error {
	for until := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		err := unix.Flock(int(claim.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(until) {
			return err
		}
	}
}

// checkClaimed refuses a range that another instance has on record which does not run now. What it has on
// record proves nothing for this one: a copy of its data directory says the same. So the directories are compared.
func checkClaimed(claim *claim, dir string, first int64) error {
	raw, err := io.ReadAll(io.LimitReader(claim, 4096))
	if err != nil {
		return fmt.Errorf("claiming users for agents: %w", err)
	}
	owner := string(raw)
	if owner == "" {
		return nil
	}
	recorded, err := recordedBy(owner, dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // only then it is gone
	case err != nil:
		return fmt.Errorf("users from %d are those of the instance in %s, whose record cannot be read: %w; mend that, or remove %s once none of its agents runs", first, owner, err, claim.Name())
	case recorded == first:
		return fmt.Errorf("users from %d are those of the instance in %s, which does not run now; should this one take its place, remove %s once none of its agents runs", first, owner, filepath.Join(owner, usersFile))
	}
	return nil
}

// recordedBy returns the first user that the instance in owner has on record, 0 where it has none or is the one in dir.
func recordedBy(owner, dir string) (int64, error) {
	there, err := os.Stat(owner)
	if err != nil {
		return 0, err
	}
	here, err := os.Stat(dir)
	if err != nil {
		return 0, fmt.Errorf("comparing it with %s: %v", dir, err) // whatever it is, the other one is not gone
	}
	if os.SameFile(there, here) {
		return 0, nil
	}
	return recordedUsers(owner)
}

// noteClaim writes whose range it is.
func noteClaim(claim *claim, dir string) error {
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = claim.Truncate(0)
	}
	if err == nil {
		_, err = claim.WriteAt([]byte(dir), 0)
	}
	if err != nil {
		return fmt.Errorf("claiming users for agents: %w", err)
	}
	return nil
}
