package isolation

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

func TestUsersAreOneInstancesOwn(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	dir, other := t.TempDir(), t.TempDir()
	first, err := openUsers(dir, 0)
	require.NoError(t, err)
	second, err := openUsers(other, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = second.claim.Close() })
	require.NotEqual(t, first.first, second.first)

	require.NoError(t, first.claim.Close())
	again, err := openUsers(dir, 0)
	require.NoError(t, err)
	require.Equal(t, first.first, again.first, "agents of before still have them")
	copied := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(copied, usersFile), []byte(strconv.FormatInt(again.first, 10)), 0o600))

	third, err := openUsers(copied, 0)

	require.NoError(t, err)
	t.Cleanup(func() { _ = third.claim.Close(); _ = again.claim.Close() })
	require.NotEqual(t, again.first, third.first, "a copied directory has none of the first one's")
	require.Equal(t, again.first, third.was)
}

// An instance that does not run keeps its users: its agents may go on, and files of theirs are there.
func TestUsersOfAnInstanceThatIsDownAreItsOwn(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	dir, other := t.TempDir(), t.TempDir()
	down, err := openUsers(dir, 0)
	require.NoError(t, err)
	require.NoError(t, down.claim.Close())

	_, err = openUsers(other, down.first)
	require.ErrorContains(t, err, "of the instance in "+dir+", which does not run now")
	back, err := openUsers(dir, 0)
	require.NoError(t, err)
	require.Equal(t, down.first, back.first)
	require.NoError(t, back.claim.Close())

	require.NoError(t, os.RemoveAll(dir))
	free, err := openUsers(other, down.first)
	require.NoError(t, err, "of one that is gone they are free")
	require.NoError(t, free.claim.Close())
}

// Should an instance have other users than before, the directories of its ended agents are its own again.
func TestDirectoriesOfUsersThatAreNoLongerOursAreTakenBack(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	dir := openDir(t)
	i := open(t, dir, 0)
	_, d := agent(t, i, filepath.Join(dir, "agents", "task", "1"), "true")
	i.users.was = i.users.first
	i.users.first += 50 * rangeUsers
	require.Zero(t, i.Find(d.Home))

	i.Release(supervisor.User{}, d)

	require.Zero(t, ownerOf(d.Home))
	require.Zero(t, ownerOf(d.Work))
}

func TestUsersOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	const named = 1_900_000_000
	stray := exec.Command("/bin/sleep", "300")
	stray.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: named + 5, Gid: named + 5}}
	require.NoError(t, stray.Start())
	t.Cleanup(func() { _ = stray.Process.Kill(); _ = stray.Wait() })
	for name, tt := range map[string]struct {
		first int64
		text  string
	}{
		"a process":         {named, "run as 1900000005"},
		"the user database": {65_000, "65534 is in /etc/passwd"},
		"below the first":   {-1, "there are no users"},
		"beyond the last":   {1<<32 - 100, "there are no users"},
	} {
		_, err := openUsers(t.TempDir(), tt.first)
		require.ErrorContains(t, err, tt.text, name)
		require.ErrorContains(t, err, "agent_users", name)
	}
	require.NoError(t, checkRange(named, true), "what is on record may have agents")
}

func TestUsersGoRound(t *testing.T) {
	t.Parallel()
	u := &users{first: 1000, taken: map[int64]bool{}}
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
