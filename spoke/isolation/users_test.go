package isolation

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
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
