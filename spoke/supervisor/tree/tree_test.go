package tree

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	rest := " S 41 42 42 0 -1 4194560 117 0 0 0 3 4 5 6 20 0 2 0 190000 2621440 333 18446744073709551615 1 1"
	tests := map[string]struct {
		line string
		want Process
		ok   bool
	}{
		"a plain name":              {"42 (sleep)" + rest, Process{Command: "sleep"}, true},
		"a name with a blank":       {"42 (my prog)" + rest, Process{Command: "my prog"}, true},
		"a name that plays a stat":  {"42 (x) Z 1 (y)" + rest, Process{Command: "x) Z 1 (y"}, true},
		"a name with a line break":  {"42 (a\nb)" + rest, Process{Command: "a\nb"}, true},
		"no name":                   {"42 " + rest, Process{}, false},
		"cut off":                   {"42 (sleep) S 41 42", Process{}, false},
		"nothing":                   {"", Process{}, false},
		"brackets the wrong way on": {"42 )sleep(" + rest, Process{}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parseStat([]byte(tt.line))

			if !tt.ok {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			want := Process{Pid: 42, Parent: 41, Start: 190000, State: 'S', Threads: 2, Ticks: 7, ChildTicks: 11, RSSPages: 333}
			want.Command = tt.want.Command
			require.Equal(t, want, got)
		})
	}
}

// A pid that was given to somebody else must not get the signal.
func TestSignalSparesAReusedPid(t *testing.T) {
	t.Parallel()
	innocent := exec.Command("/bin/sleep", "600")
	require.NoError(t, innocent.Start())
	t.Cleanup(func() { _ = innocent.Process.Kill(); _ = innocent.Wait() })
	now, err := ReadProcess(innocent.Process.Pid)
	require.NoError(t, err)
	dead := now
	dead.Start-- // the pid's former owner

	require.ErrorIs(t, dead.Signal(syscall.SIGKILL), syscall.ESRCH)
	tr := New(newMarker(), 0, nil)
	tr.signalled[dead.Pid] = dead
	found, err := tr.Kill()

	require.NoError(t, err)
	require.Empty(t, found)
	require.True(t, alive(now.Pid))
	require.NoError(t, now.Signal(syscall.SIGKILL), "its present one would get it")
}

func TestFindKnowsTheMarkerOnlyWhole(t *testing.T) {
	t.Parallel()
	marker := newMarker()
	for _, env := range []string{"X" + attempt.MarkerName + "=" + marker, attempt.MarkerName + "=" + marker + "0", "A=" + attempt.MarkerName + "=" + marker} {
		other := exec.Command("/bin/sleep", "600")
		other.Env = []string{env}
		require.NoError(t, other.Start())
		t.Cleanup(func() { _ = other.Process.Kill(); _ = other.Wait() })
	}
	own := exec.Command("/bin/sleep", "600")
	own.Env = []string{"A=B", attempt.MarkerName + "=" + marker}
	require.NoError(t, own.Start())
	t.Cleanup(func() { _ = own.Process.Kill(); _ = own.Wait() })

	found, err := New(marker, 0, nil).Find(true)

	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, own.Process.Pid, found[0].Pid)
}

func TestCgroupPlaces(t *testing.T) {
	t.Parallel()
	const (
		pure   = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
		hybrid = "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
		blank  = `29 23 0:26 / /my\040groups rw - cgroup2 cgroup2 rw` + "\n"
		inside = "29 23 0:26 /box /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	)
	tests := map[string]struct {
		mounts, own string
		want        []string
	}{
		"a service on systemd":          {pure, "0::/system.slice/spawnmesh.service\n", []string{"/sys/fs/cgroup/system.slice/spawnmesh.service", "/sys/fs/cgroup"}},
		"both versions mounted, at top": {hybrid, "4:memory:/x\n0::/\n", []string{"/sys/fs/cgroup/unified"}},
		"a blank in the path":           {blank, "0::/\n", []string{"/my groups"}},
		"a container":                   {inside, "0::/box/a\n", []string{"/sys/fs/cgroup/a", "/sys/fs/cgroup"}},
		"outside of what is mounted":    {inside, "0::/other\n", []string{"/sys/fs/cgroup"}},
		"only version 1":                {"40 31 0:37 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n", "8:pids:/\n", nil},
		"a neighbour of the same name":  {inside, "0::/boxer/a\n", []string{"/sys/fs/cgroup"}},
		"above of what is mounted":      {pure, "0::/../other\n", []string{"/sys/fs/cgroup"}},
		"no cgroups":                    {"22 27 0:21 / /proc rw - proc proc rw\n", "", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, parsePlaces(tt.mounts, tt.own))
		})
	}
}

// newMarker returns a marker that no other attempt has.
func newMarker() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return plain.Hex(b[:])
}

// alive tells whether a process runs.
func alive(pid int) bool {
	p, err := ReadProcess(pid)
	return err == nil && !p.Gone()
}

// A process that is executed anew has no environment for a moment, and the marker all the same.
func TestTheMarkerOfAProcessThatIsBeingExecuted(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "again")
	require.NoError(t, os.WriteFile(file, []byte("#!/bin/sh\nexec \"$0\"\n"), 0o700))
	marker := strings.Repeat("ab", 16)
	again := exec.Command(file)
	again.Env = []string{attempt.MarkerName + "=" + marker}
	require.NoError(t, again.Start())
	defer func() {
		_ = again.Process.Kill()
		_ = again.Wait()
	}()

	for range 5000 {
		has, err := HasMarker(again.Process.Pid, marker)
		require.NoError(t, err)
		require.True(t, has)
	}
}
