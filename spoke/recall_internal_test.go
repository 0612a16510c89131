package spoke

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// What the record of an attempt says that began before a restore is what became of it, but where another attempt has followed: then
// nobody had ended its task.
func TestARecordOfBeforeARestoreIsBelieved(t *testing.T) {
	t.Parallel()
	const killed, lost = supervisor.Killed, supervisor.Lost
	for name, tt := range map[string]struct {
		says          supervisor.Exit
		forgot, later bool
		counts        supervisor.Outcome
	}{
		"a kill":                      {supervisor.Exit{Outcome: killed, Reason: "killed by order", Code: -1, Signal: "SIGKILL"}, true, false, killed},
		"a kill, exit code 0":         {supervisor.Exit{Outcome: killed, Reason: "killed by order"}, true, false, killed},
		"a cancel":                    {supervisor.Exit{Outcome: killed, Reason: "cancelled by order", Code: -1, Signal: "SIGTERM"}, true, false, killed},
		"a cancel, exit code 0":       {supervisor.Exit{Outcome: killed, Reason: "cancelled by order"}, true, false, supervisor.Exited},
		"a lease":                     {supervisor.Exit{Outcome: killed, Reason: "the lease was lost"}, true, false, lost},
		"a kill that another follows": {supervisor.Exit{Outcome: killed, Reason: "killed by order"}, true, true, lost},
		"a timeout":                   {supervisor.Exit{Outcome: supervisor.TimedOut}, true, false, supervisor.TimedOut},
		"a timeout another follows":   {supervisor.Exit{Outcome: supervisor.TimedOut}, true, true, lost},
		"an overrun another follows":  {supervisor.Exit{Outcome: killed, Reason: overrunWhy}, true, true, killed},
		"an end":                      {supervisor.Exit{Outcome: supervisor.Exited, Code: 3}, true, true, supervisor.Exited},
		"of a database that knows":    {supervisor.Exit{Outcome: killed, Reason: "cancelled by order"}, false, false, killed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &Spoke{Log: slog.New(slog.DiscardHandler)}

			s.believe(t.Context(), &run{forgot: tt.forgot, later: tt.later}, &tt.says)

			require.Equal(t, tt.counts, tt.says.Outcome)
		})
	}
}

// What cannot be looked at may be there: nothing is started in it.
func TestWhatCannotBeLookedAtIsThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, loop := filepath.Join(dir, "file"), filepath.Join(dir, "loop")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Symlink(loop, loop))

	for path, want := range map[string]bool{file: true, filepath.Join(dir, "nothing"): false, filepath.Join(file, "below"): false, filepath.Join(loop, "below"): true} {
		there, err := exists(path)
		require.NoError(t, err)
		require.Equal(t, want, there, path)
	}
}

// A directory that a disk does not give keeps no spoke from beginning, and no other agent from being taken back.
func TestABadDirectoryKeepsNothingElseFromBeginning(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	require.NoError(t, p.Spoke.Exec(`UPDATE sequences SET base = 1`))
	s, _ := liveRun()
	var log bytes.Buffer
	s.Log, s.DB, s.backlog, s.left.most = slog.New(slog.NewTextHandler(&log, nil)), p.Spoke.DB, Backlog(p.Spoke.DB, t.TempDir()), time.Nanosecond
	require.NoError(t, s.backlog.LookForRestore(t.Context()))
	require.True(t, s.backlog.Restored())
	bad, good := askedFor(t, p, s.backlog), askedFor(t, p, s.backlog)
	looked := map[string]int{}
	s.backlog.Found = func(_, task string) (int, error) {
		if looked[task]++; task == bad {
			return 0, syscall.EIO
		}
		return 0, nil
	}

	require.NoError(t, s.lookForAttempts(t.Context()))

	require.Equal(t, map[string]int{bad: looked[bad], good: looked[bad]}, looked)
	require.Positive(t, looked[bad])
	require.Contains(t, log.String(), "cannot be told, by a fault of this host; the others go on")
}
