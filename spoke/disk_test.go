package spoke_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// A spoke whose disk is nearly full starts nothing new and says so once, also while no slot is
// free; what runs goes on, and so does the spoke once there is room.
func TestANearlyFullDiskTakesNoNewWork(t *testing.T) {
	t.Parallel()
	free, err := spoke.Free(t.TempDir())
	require.NoError(t, err)
	m := meshtest.Plan{Slots: 1, Policy: meshtest.Loose(limitedTo(fmt.Sprintf("reserve: %d", free.Bytes-1<<30))), Quiet: time.Second + time.Second/2}.Start(t, "attic")
	s, runs := m.Spokes["attic"], sleeper(t, m)
	file, err := os.Create(filepath.Join(t.TempDir(), "fill"))
	require.NoError(t, err)
	require.NoError(t, unix.Fallocate(int(file.Fd()), 0, 0, 2<<30))
	const says = "nothing new is started until there is room on the disk"
	meshtest.Await(t, "that it is noticed", func() bool { return strings.Contains(s.Log.String(), says) })

	waits := m.Spawn(t, "attic", "test", "!", "-e", file.Name()) // fails if it is started before there is room

	meshtest.Await(t, "the order", func() bool { return s.Count(t, `SELECT count(*) FROM ready`) == 1 })
	meshtest.Await(t, "that it is told to wait", func() bool { return m.View(t, "attic").Queued == 1 })
	var why backlog.Why
	s.Do(t, "GET", "/api/v1/tasks/"+waits+"/why", nil, &why)
	require.False(t, why.Claimable)
	require.True(t, slices.ContainsFunc(why.Reasons, func(r commands.WhyReason) bool {
		return r.Code == "disk" && strings.Contains(r.Text, "(limits.reserve)")
	}), "%v", why.Reasons)
	require.Regexp(t, `^its disk has \d+ MiB free, and nothing is started below \d+ MiB \(limits\.reserve\)$`, m.View(t, "attic").StartsNone)
	require.Equal(t, commands.Running, m.Agent(t, runs).State)
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+runs+"/kill", map[string]any{"reason": "enough", "grace_ms": 0}, nil)
	m.Wait(t, runs)
	meshtest.Await(t, "that it is told of the free slot", func() bool { return m.View(t, "attic").Running == 0 })
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM ready`))
	require.NoError(t, os.Remove(file.Name()))
	require.NoError(t, file.Close())
	require.Equal(t, commands.Completed, m.Wait(t, waits).State)
	require.Equal(t, 1, strings.Count(s.Log.String(), says))
	meshtest.Await(t, "that the hub is told of the room", func() bool { return m.View(t, "attic").StartsNone == "" })
	m.Check(t)
}

// What is said of a disk is by the policy in force, not by the one of the start.
func TestWhatTheDiskLacksFollowsThePolicy(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Slots: 1}.Start(t, "attic")
	s := m.Spokes["attic"]
	runs := sleeper(t, m)
	waits := m.Noop(t, "attic")
	meshtest.Await(t, "the order", func() bool { return m.Agent(t, waits).AcceptedAt != nil })
	stages := func() (list []string) {
		var why backlog.Why
		s.Do(t, "GET", "/api/v1/tasks/"+waits+"/why", nil, &why)
		for _, r := range why.Reasons {
			list = append(list, string(r.Code))
		}
		return list
	}
	require.Equal(t, []string{"slots"}, stages())

	_, err := rewrite(t, s, limitedTo("reserve: 4096TiB"))

	require.NoError(t, err)
	require.Equal(t, []string{"disk", "slots"}, stages())
	meshtest.Await(t, "that the hub is told", func() bool { return strings.Contains(m.View(t, "attic").StartsNone, "(limits.reserve)") })
	require.Equal(t, commands.Running, m.Agent(t, runs).State)
}

// Files without bytes fill a disk, too.
func TestTheReserveOfADisk(t *testing.T) {
	t.Parallel()
	reserve := spoke.Room{Bytes: 2 << 30, Inodes: 100}
	for want, free := range map[string]spoke.Room{
		"": {2 << 30, 100},
		"has 2047 MiB free, and nothing is started below 2048 MiB (limits.reserve)":           {2<<30 - 1, 1000},
		"has room for 99 more files, and nothing is started below 100 (limits.reserve_files)": {3 << 30, 99},
	} {
		require.Equal(t, want, reserve.Lack(free))
	}
	require.Empty(t, reserve.Lack(spoke.Room{Bytes: 2 << 30, Inodes: -1}), "there is no such limit")
	free, err := spoke.Free("/proc/self")
	require.NoError(t, err)
	require.Equal(t, int64(-1), free.Inodes)
	free, err = spoke.Free(t.TempDir())
	require.NoError(t, err)
	require.NotZero(t, free.Inodes)
}
