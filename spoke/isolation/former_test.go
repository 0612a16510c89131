package isolation

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// A user that is none of the instance's now may have been an agent's, unless somebody else is known to have it.
func TestAFormerUserMayBeAnAgents(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	i, free, other := withUsers(t, t.TempDir(), 0), freeRange(t), t.TempDir()
	home := t.TempDir()
	owned := func(id int64) int64 {
		require.NoError(t, os.Lchown(home, int(id), int(id)))
		former, err := i.Former(Dirs{Home: home})
		require.NoError(t, err)
		return former
	}

	require.Zero(t, owned(0))
	require.Zero(t, owned(i.users.first+1), "it is its own")
	require.Zero(t, owned(1), "it has a name")
	require.Equal(t, free+5, owned(free+5))
	theirs := withUsers(t, other, free)
	require.Zero(t, owned(free+5), "another instance has it")
	require.NoError(t, theirs.Close())
	require.Zero(t, owned(free+5), "also while it is down")
	require.Equal(t, free+rangeUsers, owned(free+rangeUsers), "the range has an end")
	require.NoError(t, os.WriteFile(claimFile(free), []byte(filepath.Clean(i.dir)), 0o600))
	require.Equal(t, free+5, owned(free+5), "the range was its own")
	gone, err := i.Former(Dirs{Home: filepath.Join(home, "nosuch")})
	require.NoError(t, err)
	require.Zero(t, gone)
}

// That a database of users cannot be read does not say that somebody has a user; and its lines may be long.
func TestADatabaseOfUsersThatCannotBeRead(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	i, home, etc := withUsers(t, t.TempDir(), 0), t.TempDir(), t.TempDir()
	require.NoError(t, os.Lchown(home, 70_007, 70_007))
	i.etc = databases(etc)
	require.NoError(t, os.Mkdir(filepath.Join(etc, "passwd"), 0o700))

	_, err := i.Former(Dirs{Home: home})

	require.ErrorIs(t, err, syscall.EISDIR)
	require.NoError(t, os.Remove(filepath.Join(etc, "passwd")))
	many := "many:x:70006:" + strings.Repeat("somebody,", 20_000) + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(etc, "group"), []byte(many), 0o600))
	former, err := i.Former(Dirs{Home: home})
	require.NoError(t, err)
	require.EqualValues(t, 70_007, former)
	require.NoError(t, os.WriteFile(filepath.Join(etc, "group"), []byte(many+"one:x:70007:\n"), 0o600))
	former, err = i.Former(Dirs{Home: home})
	require.NoError(t, err)
	require.Zero(t, former)
}

// A home that cannot be looked at is nobody's only where nobody can have one.
func TestAHomeThatCannotBeLookedAt(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	loop := filepath.Join(t.TempDir(), "loop")
	require.NoError(t, os.Symlink(loop, loop))
	home := filepath.Join(loop, "home")
	i := withUsers(t, t.TempDir(), 0)

	_, err := i.Find(home)
	require.ErrorIs(t, err, syscall.ELOOP)
	_, err = i.Former(Dirs{Home: home})
	require.ErrorIs(t, err, syscall.ELOOP)
	never := &Isolation{dir: t.TempDir()}
	former, err := never.Former(Dirs{Home: home})

	require.NoError(t, err)
	require.Zero(t, former)
}

// What runs as a user of any range that an instance had may be of one of its agents. Whose it is is known of those that it has given or adopted.
func TestNothingRunsAsAUserThatMayBeAnAgents(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	dir, first := t.TempDir(), freeRange(t)
	require.NoError(t, withUsers(t, dir, first).Close())
	for range 2 {
		require.NoError(t, withUsers(t, dir, freeRange(t)).Close())
	}
	i := withUsers(t, dir, 0)
	user, former := i.Keep(first + 7)
	require.Equal(t, supervisor.User{ID: first + 7, Reaper: first}, user)
	require.Zero(t, former)
	require.NoError(t, i.Idle())
	left := exec.Command("/bin/sleep", "600")
	left.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(user.ID), Gid: uint32(user.ID)}}
	require.NoError(t, left.Start())
	defer func() { _ = left.Process.Kill(); _ = left.Wait() }()

	require.ErrorContains(t, i.Idle(), "whose they are cannot be told")
	i.Adopted(supervisor.User{}, user.ID)
	require.NoError(t, i.Idle(), "it is known as one of before")
	i.Ended(supervisor.User{}, user.ID)
	require.ErrorContains(t, i.Idle(), "whose they are cannot be told")
	i.Adopted(user, 0)
	require.NoError(t, i.Idle())

	without := &Isolation{dir: dir}
	user, former = without.Keep(first + 7)
	without.Adopted(user, former)
	require.NoError(t, without.Idle(), "also where it has no users to give")
	without.Ended(user, former)
	require.ErrorContains(t, without.Idle(), "whose they are cannot be told")
}
