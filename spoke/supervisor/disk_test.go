package supervisor

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
)

// filling runs a script in a directory whose files are counted.
func filling(t *testing.T, script string, l Limits, change func(*Spec)) Exit {
	t.Helper()
	spec := sh(script)
	spec.Dir, spec.Limits, spec.Grace = openDir(t, User{}), l, time.Minute
	spec.Counted.Dirs = []string{spec.Dir}
	if change != nil {
		change(&spec)
	}
	a, _ := start(t, spec)
	require.Empty(t, a.Unlimited())
	return ended(t, a)
}

const mib = 1 << 20

func TestLimitOfDisk(t *testing.T) {
	t.Parallel()
	shm, err := os.MkdirTemp("/dev/shm", "disk")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(shm) })
	tests := map[string]struct {
		script string
		limits Limits
		unit   attempt.Unit
	}{
		"bytes in a file":           {"head -c 20000000 /dev/zero > f; sleep 600", Limits{Disk: 10 * mib}, attempt.Bytes},
		"bytes in many":             {"mkdir -p a/b; for i in $(seq 400); do head -c 50000 /dev/zero > a/b/$i; done; sleep 600", Limits{Disk: 10 * mib}, attempt.Bytes},
		"files":                     {"i=0; while [ $i -lt 300 ]; do : > f$i; i=$((i+1)); done; sleep 600", Limits{Inodes: 200}, attempt.Inodes},
		"a file without a name":     {"exec 3>f; rm f; head -c 20000000 /dev/zero >&3; sleep 600", Limits{Disk: 10 * mib}, attempt.Bytes},
		"directories in each other": {"d=$(seq -s / 1 1100); mkdir -p $d 2>/dev/null || (for i in $(seq 1100); do mkdir d && cd -P d; done); sleep 600", Limits{Disk: 10 * mib}, attempt.Levels},
		"in another file system":    {"head -c 20000000 /dev/zero > " + shm + "/f; sleep 600", Limits{Disk: 10 * mib}, attempt.Bytes},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got := filling(t, tt.script, tt.limits, func(s *Spec) {
				if name == "in another file system" {
					s.Counted.Dirs = append(s.Counted.Dirs, shm)
				}
			})

			require.Equal(t, Limited, got.Outcome)
			require.Equal(t, "SIGKILL", got.Signal, "at once: others lack the room")
			require.Equal(t, attempt.DiskLimit, got.Breach.Limit)
			require.Equal(t, tt.unit, got.Breach.Unit)
			require.Greater(t, got.Breach.Measured, got.Breach.Allowed)
		})
	}
}

func TestLessThanTheLimitOfDisk(t *testing.T) {
	t.Parallel()

	got := filling(t, "for i in 1 2 3 4 5 6; do head -c 5000000 /dev/zero > f; rm f; sleep 0.6; done; exit 4", Limits{Disk: 10 * mib, Inodes: 10}, nil)

	require.Equal(t, Exited, got.Outcome, "%+v", got.Breach)
	require.Equal(t, 4, got.Code)
	require.Zero(t, got.Breach)
}

// What an agent of a user of its own leaves where everybody may write counts, too.
func TestFilesInSharedDirectoriesCount(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	user := userOf(10)
	for name, dir := range map[string]string{"disk": "/tmp", "memory": "/dev/shm"} {
		t.Run(name, func(t *testing.T) {
			left := filepath.Join(dir, newMarker())
			t.Cleanup(func() { _ = os.RemoveAll(left) })

			got := filling(t, "mkdir "+left+"; head -c 20000000 /dev/zero > "+left+"/f; sleep 600", Limits{Disk: 10 * mib}, func(s *Spec) {
				s.Confine.User, s.Counted.Shared = user, []string{"/no-such-directory", "/tmp", "/dev/shm"}
				require.NoError(t, os.Chown(s.Dir, int(user.ID), int(user.ID)))
			})

			require.Equal(t, attempt.DiskLimit, got.Breach.Limit, "%+v", got)
			require.Equal(t, attempt.Bytes, got.Breach.Unit)
		})
	}
}

// An agent that closes its directories keeps nobody from counting.
func TestFilesInAnUnreadableDirectoryCount(t *testing.T) {
	t.Parallel()
	unprivileged(t, func(t *testing.T) {
		got := filling(t, "mkdir d; chmod 300 d; head -c 20000000 /dev/zero > d/f; sleep 600", Limits{Disk: 10 * mib}, nil)

		require.Equal(t, attempt.DiskLimit, got.Breach.Limit, "%+v", got)
	})
}

func TestLimitOfAFile(t *testing.T) {
	t.Parallel()

	got := filling(t, "exec head -c 20000000 /dev/zero > f", Limits{FileSize: 10 * mib}, nil)

	require.Equal(t, Signalled, got.Outcome)
	require.Equal(t, Breach{Limit: attempt.DiskLimit, Unit: attempt.Bytes, Allowed: 10 * mib, Measured: 10 * mib}, got.Breach)
}
