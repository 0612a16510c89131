package spoke_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// failingDisk has every look at path, and below it, fail, as that of a network file system whose server has gone, until mend is called.
// Where this user may mount nothing it is nil.
func failingDisk(t *testing.T, path string) (mend func()) {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	kind := map[bool]int{true: unix.S_IFDIR, false: unix.S_IFREG}[info.IsDir()]
	device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err == nil {
		err = unix.Mount("gone", path, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=%o,user_id=0,group_id=0", device.Fd(), kind))
	}
	if err != nil {
		t.Logf("this process may mount nothing here (%v): a failing disk is tried where it may, as root with /dev/fuse", err)
		return nil
	}
	require.NoError(t, device.Close())
	_, err = os.Stat(path)
	require.ErrorIs(t, err, unix.ENOTCONN)
	mended := false
	mend = func() {
		if !mended {
			mended = true
			require.NoError(t, unix.Unmount(path, unix.MNT_DETACH))
		}
	}
	t.Cleanup(mend)
	return mend
}

// An order of a program without a path waits for the disk of its host, and runs when that is mended. With --any it goes to another spoke
// after a while.
func TestAProgramWithoutAPathWaitsForItsDisk(t *testing.T) {
	t.Parallel()
	for name, patience := range map[string]time.Duration{"until it is mended": 0, "and goes elsewhere": time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "tool"), []byte("#!/bin/sh\necho ran\n"), 0o700))
			m := meshtest.Plan{Policy: meshtest.Loose(policy.Presets["open"]) + "path: " + dir + ":/usr/bin:/bin\n", LeaveFor: patience}.Start(t, "attic")
			mend := failingDisk(t, dir)
			if mend == nil {
				return
			}
			if patience > 0 { // another spoke, whose disk works
				other := t.TempDir()
				require.NoError(t, os.WriteFile(filepath.Join(other, "tool"), []byte("#!/bin/sh\necho ran\n"), 0o700))
				s := m.Add(t, "cellar")
				require.NoError(t, os.WriteFile(policy.File(s.Dir), []byte(meshtest.Loose(policy.Presets["open"])+"path: "+other+":/usr/bin:/bin\n"), 0o600))
				s.Do(t, "POST", "/api/v1/policy/reload", nil, nil)
				m.Turn(t, "cellar", "suspend")
			}
			spawn := commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"tool"}}

			named := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: spawn})
			task := named
			if patience > 0 {
				task = m.Order(t, hub.SpawnRequest{Any: true, Spawn: spawn})
			}

			meshtest.Await(t, "the order to be left", func() bool {
				return strings.Contains(m.Spokes["attic"].Log.String(), "cannot be judged on this host now")
			})
			if patience == 0 {
				require.False(t, m.Agent(t, task).State.Terminal())
				mend()
				for n := 0; n < 60 && !m.Agent(t, task).State.Terminal(); n++ { // its connection is never silent meanwhile
					m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"/bin/true"}}})
					time.Sleep(time.Second)
				}
				require.True(t, m.Agent(t, task).State.Terminal(), "what was left does not come again while its connection has something to say")
			} else {
				m.Turn(t, "cellar", "resume")
				v := m.Wait(t, named)
				require.Equal(t, []any{commands.Unavailable, commands.CapabilityMissing}, []any{v.State, v.Reason}, "%s", v.Sentence())
			}
			v := m.Wait(t, task)
			require.Equal(t, commands.Completed, v.State, "%s", v.Sentence())
			require.Equal(t, "ran\n", m.Stdout(t, task, true))
		})
	}
}

// A hub is told why an order is not accepted that its spoke leaves: since when, until when, and what would change it.
func TestAHubSaysThatAnOrderIsLeft(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := meshtest.Plan{Policy: meshtest.Loose(policy.Presets["open"]) + "path: " + dir + ":/usr/bin:/bin\n", LeaveFor: 10 * time.Minute}.Start(t, "attic")
	if failingDisk(t, dir) == nil {
		return
	}
	began := time.Now()
	task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"tool"}}})
	left := func() *api.WhyReason {
		var w api.TaskWhy
		m.Hub.Do(t, "GET", "/api/v1/tasks/"+task+"/why?ask=10s", nil, &w)
		for _, r := range w.Reasons {
			if r.Code == api.WhyCode(commands.CauseHost) {
				return &r
			}
		}
		return nil
	}

	meshtest.Await(t, "the word that it is left", func() bool { return left() != nil })

	r := left()
	require.Equal(t, "attic", r.Where)
	require.Equal(t, "the directory or the program of this order cannot be opened on this spoke now; it comes again, and is refused where that lasts", r.Text)
	require.Contains(t, r.Fix, "on its host")
	require.WithinDuration(t, began, *r.Since, time.Since(began)+time.Second)
	require.Equal(t, 10*time.Minute, r.Until.Sub(*r.Since))
	v := m.Agent(t, task)
	require.Nil(t, v.AcceptedAt)
	require.Equal(t, commands.Queued, v.State)
}

// A disk that does not mend holds up no end for ever: it is told without what the agent has written last.
func TestAnEndWaitsForItsDiskForAWhile(t *testing.T) {
	t.Parallel()
	gate := filepath.Join(t.TempDir(), "gate")
	require.NoError(t, unix.Mkfifo(gate, 0o600))
	m := meshtest.Plan{LeaveFor: time.Second}.Start(t, "attic")
	s := m.Spokes["attic"]
	task := m.Spawn(t, "attic", "/bin/sh", "-c", "echo so >&2; read line < "+gate+"; exit 1")
	m.Await(t, task, commands.Running)
	errors := filepath.Join(s.Dir, "agents", task, "1", "control", "stderr")
	meshtest.Await(t, "what it writes", func() bool { raw, _ := os.ReadFile(errors); return len(raw) > 0 })
	if failingDisk(t, errors) == nil {
		return
	}

	require.NoError(t, os.WriteFile(gate, []byte("go\n"), 0o600))

	require.Equal(t, commands.Failed, m.Wait(t, task).State)
	require.Contains(t, s.Log.String(), "its end is told without")
}

// An accepted order whose directory is behind a link waits for the disk of its host, too: its policy refuses nothing.
func TestADirectoryBehindALinkWaitsForItsDisk(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	disk, link, gate := filepath.Join(top, "disk"), filepath.Join(top, "link"), filepath.Join(top, "gate")
	require.NoError(t, os.Mkdir(disk, 0o700))
	require.NoError(t, os.Symlink(disk, link))
	require.NoError(t, unix.Mkfifo(gate, 0o600))
	m := meshtest.Plan{Slots: 1, Policy: meshtest.Loose("version: 1\nruntimes: [exec]\ncommands: [\"*\"]\ndirectories: [" + top + "]\n")}.Start(t, "attic")
	first := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"/bin/sh", "-c", "read line < " + gate}}})
	meshtest.Await(t, "the first agent to run", func() bool { return m.Agent(t, first).State == commands.Running })
	task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Dir: link, Argv: []string{"/bin/sh", "-c", "echo ran"}}})
	meshtest.Await(t, "the order to be accepted", func() bool { return m.Agent(t, task).AcceptedAt != nil })
	mend := failingDisk(t, disk)

	require.NoError(t, os.WriteFile(gate, []byte("go\n"), 0o600))

	if mend == nil {
		m.Wait(t, task)
		return
	}
	meshtest.Await(t, "an attempt that cannot start", func() bool {
		return strings.Contains(m.Spokes["attic"].Log.String(), "an agent could not be started, by a fault of this host")
	})
	require.False(t, m.Agent(t, task).State.Terminal())
	require.NotContains(t, m.Spokes["attic"].Log.String(), "not connected", "it is behind a link")
	mend()
	v := m.Wait(t, task)
	require.Equal(t, commands.Completed, v.State, "%s", v.Sentence())
}

// What an agent has written last says how it has ended, so its end waits for the disk that this is on; and what it has written is sent.
func TestAnEndWaitsForItsDisk(t *testing.T) {
	t.Parallel()
	gate := filepath.Join(t.TempDir(), "gate")
	require.NoError(t, unix.Mkfifo(gate, 0o600))
	m := meshtest.Plan{Policy: meshtest.Loose("version: 1\nruntimes: [exec]\ncommands: [{run: /bin/sh **, account: work, limit_patterns: [usage limit]}]\n")}.Start(t, "attic")
	s := m.Spokes["attic"]
	task := m.Spawn(t, "attic", "/bin/sh", "-c", "echo usage limit reached >&2; read line < "+gate+"; exit 1")
	m.Await(t, task, commands.Running)
	errors := filepath.Join(s.Dir, "agents", task, "1", "control", "stderr")
	meshtest.Await(t, "what it writes", func() bool { raw, _ := os.ReadFile(errors); return len(raw) > 0 })
	mend := failingDisk(t, errors)
	if mend == nil {
		return
	}

	require.NoError(t, os.WriteFile(gate, []byte("go\n"), 0o600))

	meshtest.Await(t, "an end that waits", func() bool {
		return strings.Contains(s.Log.String(), "recording the end of an attempt; it will be tried again")
	})
	mend()
	meshtest.Await(t, "that it is parked", func() bool { return m.Agent(t, task).Reason == commands.Limit })
	meshtest.Await(t, "its output", func() bool {
		lines := m.Logs(t, task, false)
		return len(lines) == 1 && string(lines[0].Data) == "usage limit reached\n"
	})
}

// An agent that goes on after a restart talks to its spoke as soon as the disk works again that kept its door shut.
func TestADoorWaitsForItsDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tool := filepath.Join(dir, "tool")
	require.NoError(t, os.WriteFile(tool, []byte("#!/bin/sh\nexec /bin/sleep 600\n"), 0o700))
	m := meshtest.Plan{Policy: meshtest.Loose("version: 1\nruntimes: [exec]\ncommands: [" + tool + "]\npath: " + dir + "\n")}.Start(t, "attic")
	s := m.Spokes["attic"]
	task := m.Spawn(t, "attic", "tool")
	m.Await(t, task, commands.Running)
	m.Stop(t, "attic")
	mend := failingDisk(t, dir)
	if mend == nil {
		return
	}
	m.Start(t, "attic")
	meshtest.Await(t, "the door to stay shut", func() bool {
		return strings.Contains(s.Log.String(), "an agent that goes on cannot talk to this spoke")
	})

	mend()

	require.NoError(t, doorOf(s, task, 1).Do(t.Context(), "GET", "/v1/attempt", nil, nil))
	kill(t, m, task, 0)
	require.Equal(t, commands.Cancelled, m.Wait(t, task).State)
}

// A kill of what had begun before a restore waits for the disk that says so: it is not told as cancelled while its agent runs.
func TestAKillAfterARestoreWaitsForItsDisk(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Lease: 10 * time.Minute, Slots: 1}.Start(t, "attic")
	s := m.Spokes["attic"]
	first, c := waiting(t, m), count(t, m)
	meshtest.Await(t, "the order to be accepted", func() bool { return m.Agent(t, c.task).AcceptedAt != nil })
	m.Stop(t, "attic")
	backup := s.Backup(t)
	m.Start(t, "attic")
	m.AwaitLink(t, "attic")
	kill(t, m, first, 0)
	m.Await(t, c.task, commands.Running)
	s.Proxy.Cut()
	m.Stop(t, "attic")
	s.Restore(t, backup)
	m.Start(t, "attic")
	mend := failingDisk(t, filepath.Join(s.Dir, "agents", c.task))
	if mend == nil {
		return
	}
	enough := map[string]any{"reason": "enough"}

	require.Error(t, s.Ask(t, "POST", "/api/v1/tasks/"+c.task+"/kill", enough, nil))

	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM tasks WHERE id = $1 AND state = 'queued'`, c.task))
	moves(t, c.far)
	mend()
	s.Do(t, "POST", "/api/v1/tasks/"+c.task+"/kill", enough, nil)
	s.Proxy.Heal()
	v := m.Wait(t, c.task)
	require.Equal(t, []any{commands.Cancelled, 1}, []any{v.State, v.Attempt})
	stands(t, c.far)
}

// A disk that does not say for a while whether an attempt has a directory neither ends its task nor holds a slot: it is tried again. After a
// restore the attempt may have begun, so no other follows before that is known.
func TestATaskOutlivesAFaultOfItsDirectory(t *testing.T) {
	t.Parallel()
	for name, restored := range map[string]bool{"as it was": false, "restored": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := meshtest.Plan{Slots: 1, LeaveFor: time.Second}.Start(t, "attic")
			s, task := m.Spokes["attic"], meshtest.NewID()
			released := func() int {
				return s.Count(t, `SELECT count(*) FROM ended_attempts WHERE task = $1 AND outcome = 'released'`, task)
			}
			if restored {
				m.Stop(t, "attic")
				s.Exec(t, `UPDATE sequences SET base = 1`)
				m.Start(t, "attic")
			}
			lift := heldBack(t, s)
			m.Order(t, hub.SpawnRequest{ID: task, Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"true"}, BackoffMS: 100}})
			meshtest.Await(t, "the order to be accepted", func() bool { return m.Agent(t, task).AcceptedAt != nil })
			at := filepath.Join(s.Dir, "agents", task)
			require.NoError(t, os.MkdirAll(at, 0o700))
			mend := failingDisk(t, at)
			if mend == nil {
				return
			}

			lift()

			if restored {
				meshtest.Await(t, "an attempt that waits", func() bool { return strings.Contains(s.Log.String(), "taking over an attempt; it will be tried again") })
			} else {
				meshtest.Await(t, "a second attempt that is not started either", func() bool { return released() > 1 })
			}
			require.Equal(t, commands.Completed, m.Wait(t, m.Spawn(t, "attic", "true")).State, "its slot is free")
			if restored {
				require.Zero(t, released())
			}
			mend()
			v := m.Wait(t, task)
			require.Equal(t, commands.Completed, v.State, "%s", v.Sentence())
		})
	}
}

// An attempt whose directory a disk does not give holds no slot while it is not told whose it is, and a kill ends it: what has its marker
// is ended, or, after a restore, when its lease is over. So it is where the directory of its task is not given, and where it is known whose it is.
func TestAKillOfAnAttemptThatCannotBeLookedAt(t *testing.T) {
	t.Parallel()
	for name, is := range map[string]struct {
		lease           time.Duration
		restored, known bool
		dead            bool // its shim is
		at              string
	}{
		"as it was":                         {lease: 10 * time.Minute, at: "1"},
		"restored":                          {lease: 5 * time.Second, restored: true, at: "1"},
		"restored, its task":                {lease: 5 * time.Second, restored: true},
		"its start is known":                {lease: 10 * time.Minute, known: true, at: "1"},
		"known, and its shim is dead":       {lease: 10 * time.Minute, known: true, at: "1", dead: true},
		"known, and its record is not told": {lease: 10 * time.Minute, known: true, at: "1/control/exit.json", dead: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := meshtest.Plan{Slots: 1, Lease: is.lease, LeaveFor: time.Second}.Start(t, "attic")
			s, c := m.Spokes["attic"], count(t, m)
			m.Await(t, c.task, commands.Running)
			moves(t, c.far)
			shim := s.Count(t, `SELECT shim_pid FROM sessions WHERE task = $1`, c.task)
			m.Stop(t, "attic")
			if !is.known {
				s.Exec(t, `DELETE FROM sessions WHERE task = $1`, c.task)
			}
			if is.restored {
				s.Exec(t, `UPDATE sequences SET base = 1`)
			}
			if is.dead {
				require.NoError(t, syscall.Kill(shim, syscall.SIGKILL))
			}
			at := filepath.Join(s.Dir, "agents", c.task, is.at)
			if _, err := os.Stat(at); err != nil {
				require.NoError(t, os.WriteFile(at, nil, 0o600))
			}
			if failingDisk(t, at) == nil {
				return
			}
			m.Start(t, "attic")
			other := m.Spawn(t, "attic", "true")
			if !is.known || is.dead {
				require.Equal(t, commands.Completed, m.Wait(t, other).State, "its slot is free")
			}

			kill(t, m, c.task, 0)

			v := m.Wait(t, c.task)
			require.Equal(t, []any{commands.Cancelled, 1}, []any{v.State, v.Attempt}, "%s", v.Sentence())
			stands(t, c.far)
			require.Equal(t, commands.Completed, m.Wait(t, other).State)
		})
	}
}

// A directory that a disk does not give tells nothing of other tasks.
func TestAFaultOfOneDirectoryIsOfItsTask(t *testing.T) {
	t.Parallel()
	dir, task := t.TempDir(), meshtest.NewID()
	at := filepath.Join(dir, "agents", task)
	require.NoError(t, os.MkdirAll(at, 0o700))
	if failingDisk(t, at) == nil {
		return
	}

	_, err := spoke.Backlog(nil, dir).Found(meshtest.NewID(), task)

	require.ErrorIs(t, err, unix.ENOTCONN)
	require.ErrorIs(t, err, backlog.ErrUntold)
}

// Of the attempts of a task none below the one that counts is looked at: on a bad disk each may take seconds.
func TestOnlyTheLastAttemptIsLookedAt(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]bool{"a disk that fails": true, "a disk that works": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, own, task := t.TempDir(), meshtest.NewID(), meshtest.NewID()
			attempt := func(n, owner string) (note string) {
				at := filepath.Join(dir, "agents", task, n, "control")
				require.NoError(t, os.MkdirAll(at, 0o700))
				note = filepath.Join(at, "connection")
				require.NoError(t, os.WriteFile(note, []byte(owner), 0o600))
				return note
			}
			opened, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
			require.NoError(t, err)
			defer func() { _ = unix.Close(opened) }()
			for _, n := range []string{"1", "9"} {
				_, err = unix.InotifyAddWatch(opened, attempt(n, own), unix.IN_OPEN)
				require.NoError(t, err)
			}
			attempt("10", own)
			attempt("11", meshtest.NewID())
			if fails && failingDisk(t, filepath.Join(dir, "agents", task, "10")) == nil {
				return
			}

			last, err := spoke.Backlog(nil, dir).Found(own, task)

			require.NoError(t, err)
			require.Equal(t, 10, last)
			_, err = unix.Read(opened, make([]byte, 1024))
			require.ErrorIs(t, err, unix.EAGAIN, "nothing of the earlier ones was opened")
		})
	}
}

// What a bad disk does not give of an attempt that is over does not hold up what the next one has written.
func TestABadDiskHoldsUpNoOutputOfTheNextAttempt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	gate := filepath.Join(dir, "gate")
	require.NoError(t, unix.Mkfifo(gate, 0o600))
	m := meshtest.Plan{LeaveFor: time.Second}.Start(t, "attic")
	s := m.Spokes["attic"]
	task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, MaxRetries: 1, BackoffMS: 10,
		Argv: []string{"/bin/sh", "-c", `[ ! -e "$0" ] || { echo two; exit; }; : >"$0"; read line <"$1"; echo one; exit 1`, filepath.Join(dir, "again"), gate}}})
	m.Await(t, task, commands.Running)
	if failingDisk(t, filepath.Join(s.Dir, "agents", task, "1", "control", "stdout")) == nil {
		return
	}

	require.NoError(t, os.WriteFile(gate, []byte("go\n"), 0o600))

	v := m.Wait(t, task)
	require.Equal(t, commands.Completed, v.State, "%s", v.Sentence())
	meshtest.Await(t, "what the second attempt has written", func() bool { return m.Stdout(t, task, false) == "two\n" })
}
