package supervisor

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	rest := " S 41 42 42 0 -1 4194560 117 0 0 0 3 4 5 6 20 0 2 0 190000 2621440 333 18446744073709551615 1 1"
	tests := map[string]struct {
		line string
		want process
		ok   bool
	}{
		"a plain name":              {"42 (sleep)" + rest, process{command: "sleep"}, true},
		"a name with a blank":       {"42 (my prog)" + rest, process{command: "my prog"}, true},
		"a name that plays a stat":  {"42 (x) Z 1 (y)" + rest, process{command: "x) Z 1 (y"}, true},
		"a name with a line break":  {"42 (a\nb)" + rest, process{command: "a\nb"}, true},
		"no name":                   {"42 " + rest, process{}, false},
		"cut off":                   {"42 (sleep) S 41 42", process{}, false},
		"nothing":                   {"", process{}, false},
		"brackets the wrong way on": {"42 )sleep(" + rest, process{}, false},
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
			want := process{pid: 42, ppid: 41, start: 190000, state: 'S', threads: 2, ticks: 7, childTick: 11, rssPages: 333}
			want.command = tt.want.command
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
	now, err := readProcess(innocent.Process.Pid)
	require.NoError(t, err)
	dead := now
	dead.start-- // the pid's former owner

	require.ErrorIs(t, dead.signal(unix.SIGKILL), unix.ESRCH)
	tr := newTree(newMarker(), 0, nil)
	tr.signalled[dead.pid] = dead
	found, err := tr.kill()

	require.NoError(t, err)
	require.Empty(t, found)
	require.True(t, alive(now.pid))
	require.NoError(t, now.signal(unix.SIGKILL), "its present one would get it")
}

func TestFindKnowsTheMarkerOnlyWhole(t *testing.T) {
	t.Parallel()
	marker := newMarker()
	for _, env := range []string{"X" + MarkerName + "=" + marker, MarkerName + "=" + marker + "0", "A=" + MarkerName + "=" + marker} {
		other := exec.Command("/bin/sleep", "600")
		other.Env = []string{env}
		require.NoError(t, other.Start())
		t.Cleanup(func() { _ = other.Process.Kill(); _ = other.Wait() })
	}
	own := exec.Command("/bin/sleep", "600")
	own.Env = []string{"A=B", MarkerName + "=" + marker}
	require.NoError(t, own.Start())
	t.Cleanup(func() { _ = own.Process.Kill(); _ = own.Wait() })

	found, err := newTree(marker, 0, nil).find(true)

	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, own.Process.Pid, found[0].pid)
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
		"no cgroups":                    {"22 27 0:21 / /proc rw - proc proc rw\n", "", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, parseCgroupPlaces(tt.mounts, tt.own))
		})
	}
}
