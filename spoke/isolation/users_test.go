package isolation

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

func TestUsersAreOneInstancesOwn(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	dir := t.TempDir()
	first := withUsers(t, dir, 0).users
	second := withUsers(t, t.TempDir(), 0).users
	require.NotEqual(t, first.first, second.first)

	require.NoError(t, first.claim.Close())
	again := withUsers(t, dir, 0).users
	require.Equal(t, first.first, again.first, "agents of before still have them")
	copied := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(copied, usersFile), []byte(strconv.FormatInt(again.first, 10)), 0o600))

	third := withUsers(t, copied, 0).users

	require.NotEqual(t, again.first, third.first, "a copied directory has none of the first one's")
	require.Equal(t, again.first, third.was)
	require.NoError(t, os.Remove(filepath.Join(dir, usersFile)))
	_, err := openUsers(t.TempDir(), again.first)
	require.ErrorContains(t, err, "are those of another instance", "it runs, whatever became of its record")
}

// An instance that starts beside this one looks at the claims of all ranges. That costs nobody his range.
func TestARangeThatIsOnlyLookedAtIsNotLost(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	dir, first := t.TempDir(), freeRange(t)
	require.NoError(t, withUsers(t, dir, first).Close())
	looking, err := os.Open(claimFile(first))
	require.NoError(t, err)
	require.NoError(t, syscall.Flock(int(looking.Fd()), syscall.LOCK_EX))
	time.AfterFunc(50*time.Millisecond, func() { _ = looking.Close() })

	back := withUsers(t, dir, 0)

	require.Equal(t, first, back.users.first)
	require.NoError(t, back.Close())
}

// What was let go of is free at once, also while a program is being started that has its file open for a moment.
func TestAClaimEndsWithoutItsCopies(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	first := freeRange(t)
	had := withUsers(t, t.TempDir(), first)
	copied, err := syscall.Dup(int(had.users.claim.Fd()))
	require.NoError(t, err)
	defer syscall.Close(copied)
	require.NoError(t, os.RemoveAll(had.dir))
	require.NoError(t, had.Close())

	other, err := openUsers(t.TempDir(), first)

	require.NoError(t, err)
	require.NoError(t, other.claim.Close())
}

// An instance that does not run keeps its users: its agents may go on, and files of theirs are there.
func TestUsersOfAnInstanceThatIsDownAreItsOwn(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	dir, other, first := t.TempDir(), t.TempDir(), freeRange(t)
	require.NoError(t, withUsers(t, dir, first).Close())

	_, err := openUsers(other, first)
	require.ErrorContains(t, err, "of the instance in "+dir+", which does not run now")
	back := withUsers(t, dir, 0)
	require.Equal(t, first, back.users.first)
	require.NoError(t, back.Close())

	require.NoError(t, os.WriteFile(filepath.Join(dir, usersFile), []byte("x"), 0o600))
	_, err = openUsers(other, first)
	require.ErrorContains(t, err, "cannot be read")
	require.NoError(t, os.RemoveAll(dir))
	free, err := openUsers(other, first)
	require.NoError(t, err, "of one that is gone they are free")
	require.NoError(t, free.claim.Close())
}

// A copy of a data directory has the same range on record. It gets another one, as long as the first directory is
// there or nobody can tell.
func TestACopyHasNoUsersOfAnInstanceThatIsDown(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	dir, copied, first := filepath.Join(t.TempDir(), "data"), t.TempDir(), freeRange(t)
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, withUsers(t, dir, first).Close())
	record, err := os.ReadFile(filepath.Join(dir, usersFile))
	require.NoError(t, err)
	take := func(named int64) *users {
		require.NoError(t, os.WriteFile(filepath.Join(copied, usersFile), record, 0o600))
		u, err := openUsers(copied, named)
		if named != 0 {
			require.Error(t, err)
			return &users{why: err}
		}
		require.NoError(t, err)
		require.NoError(t, u.claim.Close())
		return u
	}

	other := take(0)

	require.NotEqual(t, first, other.first)
	require.Equal(t, first, other.was)
	require.ErrorContains(t, other.why, "of the instance in "+dir+", which does not run now; should this one take its place, remove "+filepath.Join(dir, usersFile))
	require.ErrorContains(t, take(first).why, "name the first of one under agent_users")
	back := withUsers(t, dir, 0)
	require.Equal(t, first, back.users.first, "its own are left to the first one")
	require.NoError(t, back.Close())

	moved := dir + "-moved"
	require.NoError(t, errors.Join(os.Rename(dir, moved), os.Symlink(dir, dir)))
	require.ErrorContains(t, take(first).why, "cannot be read")
	require.NoError(t, errors.Join(os.Remove(dir), os.Symlink(moved, dir)))
	require.ErrorContains(t, take(first).why, "which does not run now")
	linked := withUsers(t, moved, 0)
	require.Equal(t, first, linked.users.first, "under another name it is the same directory")
	require.NoError(t, linked.Close())
	require.NoError(t, os.Rename(moved, dir+"-again"))
	require.Equal(t, first, take(0).first, "of one that is gone they are free")
}

// freeRange names users that nothing on this host has, and removes what a test leaves of their claim: an earlier run
// that was killed may have left processes, directories and claims.
func freeRange(t testing.TB) int64 {
	t.Helper()
	for {
		first := 1_900_000_000 + rand.Int64N(50_000)*rangeUsers
		running, err := supervisor.RunningUsers(first, first+rangeUsers-1)
		require.NoError(t, err)
		if _, err := os.Lstat(claimFile(first)); err == nil || len(running) > 0 || checkRange(first) != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(claimFile(first)) })
		return first
	}
}

// withUsers is an instance that has the range named, without what it tries out at its start.
func withUsers(t *testing.T, dir string, named int64) *Isolation {
	t.Helper()
	u, err := openUsers(dir, named)
	require.NoError(t, err)
	i := &Isolation{dir: dir, users: u, faults: map[string]error{}, grants: func(c supervisor.Confine) supervisor.Confine { return c }}
	t.Cleanup(func() { _ = i.Close() })
	return i
}

// Whatever users an instance had before, the directories of its ended agents are its own again.
func TestDirectoriesOfUsersThatAreNoLongerOursAreTakenBack(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	dir := openDir(t)
	require.NoError(t, admit(dir))
	i := withUsers(t, dir, freeRange(t))
	_, whole := agent(t, i, filepath.Join(dir, "agents", "task", "1"), "true")
	_, part := agent(t, i, filepath.Join(dir, "agents", "task", "2"), "true")
	require.NoError(t, os.Lchown(part.Home, 0, 0), "as if a spoke had ended while it gave them")
	for range 2 { // the range on record is neither the one of these agents
		require.NoError(t, i.Close())
		i = withUsers(t, dir, freeRange(t))
	}
	outside := t.TempDir()
	require.NoError(t, errors.Join(os.Chmod(outside, 0o755), os.Remove(whole.Temp), os.Symlink(outside, whole.Temp), os.Lchown(whole.Temp, 7, 7)))
	require.Zero(t, found(t, i, whole.Home))

	i.Release(supervisor.User{}, whole)
	i.Release(supervisor.User{}, part)

	for _, path := range append(whole.list(), part.list()...) {
		owner, err := ownerOf(path)
		require.NoError(t, err)
		require.Zero(t, owner, path)
	}
	info, err := os.Stat(outside)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), info.Mode().Perm(), "a link is not followed")
}

func TestUsersOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	named := freeRange(t)
	stray := exec.Command("/bin/sleep", "300")
	stray.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(named + 5), Gid: uint32(named + 5)}}
	require.NoError(t, stray.Start())
	t.Cleanup(func() { _ = stray.Process.Kill(); _ = stray.Wait() })

	_, err := openUsers(t.TempDir(), named)

	require.ErrorContains(t, err, fmt.Sprintf("run as %d", named+5))
	require.ErrorContains(t, err, "agent_users")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, usersFile), fmt.Append(nil, named), 0o600))
	require.Equal(t, named, withUsers(t, dir, 0).users.first, "what is on record may have agents")
}

// Of a range that there cannot be no claim is written.
func TestARangeIsCheckedBeforeItIsClaimed(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	for name, tt := range map[string]struct {
		first int64
		text  string
	}{
		"below the first":      {-1, "there are no 4096 users from -1 on"},
		"one beyond the last":  {1<<32 - 1 - rangeUsers + 1, "there are no"},
		"beyond all numbers":   {math.MaxInt64 - 10, "there are no"},
		"what is reserved":     {65_535, "the kernel reserves 65534 and 65535"},
		"the user database":    {1, "is in /etc/passwd"},
		"up to what is unused": {65_534 - rangeUsers + 1, "the kernel reserves"},
	} {
		_ = os.Remove(claimFile(tt.first)) // of an earlier version

		_, err := openUsers(t.TempDir(), tt.first)

		require.ErrorContains(t, err, tt.text, name)
		require.ErrorContains(t, err, "agent_users", name)
		require.NoFileExists(t, claimFile(tt.first), name)
	}
	require.ErrorContains(t, checkRange(0), "there are no")
	require.NotContains(t, fmt.Sprint(checkRange(1<<32-1-rangeUsers)), "there are no", "the last one")
}

func TestUsersGoRound(t *testing.T) {
	t.Parallel()
	u := &users{first: 1000, taken: map[int64]bool{}, given: map[int64]bool{}}
	seen := map[int64]bool{}
	for range rangeUsers - 1 {
		id, err := u.take()
		require.NoError(t, err)
		require.True(t, u.holds(id))
		require.False(t, seen[id])
		require.NotEqual(t, u.reaper(), id)
		seen[id] = true
	}
	_, err := u.take()
	require.ErrorContains(t, err, "all 4095 users for agents are taken")
	u.release(1001)
	u.release(1000 + rangeUsers - 1)
	id, err := u.take()
	require.NoError(t, err)
	require.Equal(t, int64(1001), id, "the one that was free longest")
}

// found is the user whose a home is.
func found(t *testing.T, i *Isolation, home string) supervisor.User {
	t.Helper()
	u, err := i.Find(home)
	require.NoError(t, err)
	return u
}
