package spoke_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

// An agent with a user of its own and without a cgroup is not told as ended while something of it lives, where a disk does not say which user that
// is: what its shim has started tells, and else nothing that may have such a user may run.
func TestAUserThatADiskDoesNotTell(t *testing.T) {
	t.Parallel()
	for name, is := range map[string]struct{ dead, restored, moved bool }{"its shim lives": {}, "its shim is dead": {dead: true}, "restored": {dead: true, restored: true}, "its range is another one": {moved: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := meshtest.Plan{Policy: policy.Presets["open"] + "isolation: user\n", Passable: true, Slots: 1, Lease: 10 * time.Minute, LeaveFor: time.Second}.Start(t, "attic")
			s := m.Spokes["attic"]
			if os.Geteuid() != 0 {
				return // only root gives users
			}
			task := m.Spawn(t, "attic", "sh", "-c", `setsid env -i sleep 600 & echo $! >pid; echo $$ >self; exec sleep 600`)
			at := filepath.Join(s.Dir, "agents", task, "1")
			child := pidIn(t, filepath.Join(at, "work", "pid"))
			agent := pidIn(t, filepath.Join(at, "work", "self"))
			m.Await(t, task, commands.Running)
			shim := s.Count(t, `SELECT shim_pid FROM sessions WHERE task = $1`, task)
			m.Stop(t, "attic")
			withoutGroup(t, child)
			s.Exec(t, `DELETE FROM sessions WHERE task = $1`, task)
			if is.restored {
				s.Exec(t, `UPDATE sequences SET base = 1`)
			}
			if is.dead {
				require.NoError(t, syscall.Kill(shim, syscall.SIGKILL))
			}
			if failingDisk(t, at) == nil {
				return
			}
			if is.moved {
				named := fmt.Sprintf("agent_users: %d\n", 2_200_000_000+4096*rand.Int64N(50_000))
				require.NoError(t, os.WriteFile(policy.File(s.Dir), []byte(policy.Presets["open"]+"isolation: user\n"+named), 0o600))
			}
			m.Start(t, "attic")
			require.Equal(t, commands.Completed, m.Wait(t, m.Spawn(t, "attic", "true")).State, "its slot is free")

			kill(t, m, task, 0)

			if is.dead {
				meshtest.Await(t, "the word that something may live", func() bool { return strings.Contains(s.Log.String(), "whose they are cannot be told") })
				require.False(t, m.Agent(t, task).State.Terminal())
				require.True(t, lives(child))
				_ = syscall.Kill(agent, syscall.SIGKILL) // it may have ended with its shim
				require.NoError(t, syscall.Kill(child, syscall.SIGKILL))
			}
			v := m.Wait(t, task)
			require.Equal(t, commands.Cancelled, v.State, "%s", v.Sentence())
			require.False(t, lives(child))
		})
	}
}

// An attempt is not lost, and its task is not run again, while something of it lives and only its home cannot be looked at, which tells its user.
// It has lived on where its shim does.
func TestAHomeThatADiskDoesNotTell(t *testing.T) {
	t.Parallel()
	for name, dead := range map[string]bool{"its shim lives": false, "its shim is dead": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := meshtest.Plan{Policy: policy.Presets["open"] + "isolation: user\n", Passable: true, Slots: 1, Lease: 10 * time.Minute, LeaveFor: time.Second}.Start(t, "attic")
			s := m.Spokes["attic"]
			if os.Geteuid() != 0 {
				return // only root gives users
			}
			task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, OnLoss: commands.LossReruns, BackoffMS: 10, MaxRetries: 1,
				Argv: []string{"sh", "-c", `setsid env -i sleep 600 & echo $! >pid; exec sleep 600`}}})
			at := filepath.Join(s.Dir, "agents", task, "1")
			child := pidIn(t, filepath.Join(at, "work", "pid"))
			m.Await(t, task, commands.Running)
			shim := s.Count(t, `SELECT shim_pid FROM sessions WHERE task = $1`, task)
			m.Stop(t, "attic")
			withoutGroup(t, child)
			if failingDisk(t, filepath.Join(at, "home")) == nil {
				return
			}
			if dead {
				require.NoError(t, syscall.Kill(shim, syscall.SIGKILL))
			}
			m.Start(t, "attic")
			if !dead {
				meshtest.Await(t, "that it is adopted", func() bool {
					return strings.Contains(s.Log.String(), "taking over open attempts") && m.Agent(t, task).State == commands.Running
				})
				time.Sleep(time.Second)
				require.NoError(t, syscall.Kill(shim, syscall.SIGKILL)) // its user is known by now: all of it ends
			} else {
				meshtest.Await(t, "the word that something may live", func() bool { return strings.Contains(s.Log.String(), "whose they are cannot be told") })
				require.True(t, lives(child))
				require.NoDirExists(t, filepath.Join(s.Dir, "agents", task, "2"))
				require.NoError(t, syscall.Kill(child, syscall.SIGKILL))
			}

			pidIn(t, filepath.Join(s.Dir, "agents", task, "2", "work", "pid"))

			require.False(t, lives(child))
			kill(t, m, task, 0)
			m.Wait(t, task)
		})
	}
}

// A kill of what a disk does not tell comes to its end while another agent with a user of its own runs, which this process has adopted.
func TestAKillWhileAnotherAgentRuns(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Policy: policy.Presets["open"] + "isolation: user\n", Passable: true, Slots: 2, Lease: 10 * time.Minute, LeaveFor: time.Second}.Start(t, "attic")
	s := m.Spokes["attic"]
	if os.Geteuid() != 0 {
		return // only root gives users
	}
	task := m.Spawn(t, "attic", "sh", "-c", `echo $$ >pid; exec sleep 600`)
	other := m.Spawn(t, "attic", "sleep", "600")
	at := filepath.Join(s.Dir, "agents", task, "1")
	agent := pidIn(t, filepath.Join(at, "work", "pid"))
	m.Await(t, task, commands.Running)
	m.Await(t, other, commands.Running)
	shim := s.Count(t, `SELECT shim_pid FROM sessions WHERE task = $1`, task)
	m.Stop(t, "attic")
	withoutGroup(t, agent)
	require.NoError(t, syscall.Kill(shim, syscall.SIGKILL))
	_ = syscall.Kill(agent, syscall.SIGKILL) // it may have ended with its shim
	if failingDisk(t, at) == nil {
		return
	}
	m.Start(t, "attic")

	kill(t, m, task, 0)

	v := m.Wait(t, task)
	require.Equal(t, commands.Cancelled, v.State, "%s", v.Sentence())
	require.Equal(t, commands.Running, m.Agent(t, other).State)
}

// An agent that was adopted by its cgroup while a disk did not tell its user has it all the same: when it ends, what it has left elsewhere is removed
// before another one gets that user.
func TestAHiddenUserIsTakenBackAtTheEnd(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Policy: policy.Presets["open"] + "isolation: user\n", Passable: true, Slots: 1, Lease: 10 * time.Minute, LeaveFor: time.Second}.Start(t, "attic")
	s := m.Spokes["attic"]
	if os.Geteuid() != 0 {
		return // only root gives users
	}
	left := filepath.Join("/dev/shm", "left-"+filepath.Base(t.TempDir())+filepath.Base(filepath.Dir(s.Dir)))
	t.Cleanup(func() { _ = os.Remove(left) })
	task := m.Spawn(t, "attic", "sh", "-c", `echo x >"$0"; echo $$ >pid; exec sleep 600`, left)
	at := filepath.Join(s.Dir, "agents", task, "1")
	pidIn(t, filepath.Join(at, "work", "pid"))
	m.Await(t, task, commands.Running)
	m.Stop(t, "attic")
	mend := failingDisk(t, filepath.Join(at, "home"))
	if mend == nil {
		return
	}
	m.Start(t, "attic")
	meshtest.Await(t, "that it is adopted", func() bool {
		return strings.Contains(s.Log.String(), "taking over open attempts") && m.Agent(t, task).State == commands.Running
	})
	require.FileExists(t, left)
	mend()

	kill(t, m, task, 0)
	m.Wait(t, task)

	meshtest.Await(t, "what it has left is removed", func() bool {
		_, err := os.Lstat(left)
		return errors.Is(err, fs.ErrNotExist)
	})
}

// After a restore an attempt is not told as ended while a later one may live that the database does not know: the directory of their task cannot
// be read. It is so whether its own start is known or not.
func TestALaterAttemptThatADiskDoesNotTell(t *testing.T) {
	t.Parallel()
	t.Run("its start is known", func(t *testing.T) { t.Parallel(); laterUntold(t, true) })
	t.Run("its start is not known", func(t *testing.T) { t.Parallel(); laterUntold(t, false) })
}

func laterUntold(t *testing.T, known bool) {
	m := meshtest.Plan{Slots: 1, Lease: 10 * time.Minute, LeaveFor: time.Second}.Start(t, "attic")
	s, c := m.Spokes["attic"], counter{dir: t.TempDir()}
	c.task = m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, MaxRetries: 1, BackoffMS: 10, Argv: []string{"sh", "-c",
		`cd "$0"; [ "$SPAWNMESH_ATTEMPT" = 2 ] || { until [ -e fail ]; do sleep 0.02; done; exit 1; }; while [ ! -e go ]; do echo x >>n; sleep 0.01; done`, c.dir}}})
	m.Await(t, c.task, commands.Running)
	m.Stop(t, "attic")
	if !known {
		s.Exec(t, `DELETE FROM sessions WHERE task = $1`, c.task)
	}
	backup := s.Backup(t)
	m.Start(t, "attic")
	require.NoError(t, os.WriteFile(filepath.Join(c.dir, "fail"), nil, 0o600))
	moves(t, c.far)
	s.Proxy.Cut() // the hub does not say that there is one
	m.Stop(t, "attic")
	s.Restore(t, backup)
	if failingDisk(t, filepath.Join(s.Dir, "agents", c.task)) == nil {
		return
	}
	m.Start(t, "attic")

	meshtest.Await(t, "a kill that comes to what is taken over", func() bool {
		return s.Ask(t, "POST", "/api/v1/tasks/"+c.task+"/kill", map[string]any{"reason": "enough"}, nil) == nil
	})
	meshtest.Await(t, "the word that it may live", func() bool { return strings.Contains(s.Log.String(), "what may be the agent of attempt 2 lives") })
	require.False(t, m.Agent(t, c.task).State.Terminal())
	moves(t, c.far)
	c.finish(t)
	s.Proxy.Heal()
	v := m.Wait(t, c.task)
	require.Equal(t, commands.Cancelled, v.State, "%s", v.Sentence())
}

func lives(pid int) bool {
	p, err := tree.ReadProcess(pid)
	return err == nil && !p.Gone()
}

// pidIn is the process id that a file will have.
func pidIn(t *testing.T, file string) (pid int) {
	t.Helper()
	meshtest.Await(t, "a process id in "+file, func() bool {
		raw, _ := os.ReadFile(file)
		_, err := fmt.Sscan(string(raw), &pid)
		return err == nil
	})
	return pid
}

// withoutGroup takes all that is in the cgroup of a process out of it, and the group away, as if this host had none.
func withoutGroup(t *testing.T, pid int) {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(raw)) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok || !strings.Contains(path, "spawnmesh/") {
			continue
		}
		top := "/sys/fs/cgroup"
		if _, err := os.Stat(filepath.Join(top, "unified")); err == nil {
			top = filepath.Join(top, "unified")
		}
		group := filepath.Join(top, path)
		meshtest.Await(t, "the group to be empty", func() bool {
			pids, _ := os.ReadFile(filepath.Join(group, "cgroup.procs"))
			for _, pid := range strings.Fields(string(pids)) {
				_ = os.WriteFile(filepath.Join(top, "cgroup.procs"), []byte(pid), 0o600)
			}
			return os.Remove(group) == nil
		})
	}
}

// The directory of an attempt that is over may name a user that another agent has by now: it is taken back, and that agent goes on.
func TestAHomeOfAnothersUserEndsNobody(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Policy: policy.Presets["open"] + "isolation: user\n", Passable: true, Slots: 2, Quiet: time.Second}.Start(t, "attic")
	s := m.Spokes["attic"]
	if os.Geteuid() != 0 {
		return // only root gives users
	}
	over, other := m.Spawn(t, "attic", "true"), m.Spawn(t, "attic", "sh", "-c", "echo $$ >pid; exec sleep 600")
	pid := pidIn(t, filepath.Join(s.Dir, "agents", other, "1", "work", "pid"))
	m.Wait(t, over)
	owner := func(path string) int {
		info, err := os.Stat(path)
		require.NoError(t, err)
		return int(info.Sys().(*syscall.Stat_t).Uid)
	}
	home, user := filepath.Join(s.Dir, "agents", over, "1", "home"), owner(filepath.Join(s.Dir, "agents", other, "1", "home"))
	meshtest.Await(t, "it is taken back", func() bool { return owner(home) == 0 })
	require.NotZero(t, user)
	require.NoError(t, os.Lchown(home, user, user))

	meshtest.Await(t, "it is taken back again", func() bool { return owner(home) == 0 })

	time.Sleep(3 * time.Second) // what is released is cleared later
	require.True(t, lives(pid))
	kill(t, m, other, 0)
	m.Wait(t, other)
}
