package spoke

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store"
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

// A disk that is slow holds no page of what a hub recalls for long. What it had no time for holds up nothing else, and what was found of that before
// is known: its attempt is opened, and none is started over.
func TestASlowDiskHoldsUpNoPageOfAHub(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	require.NoError(t, p.Spoke.Exec(`UPDATE sequences SET base = 1`))
	s, _ := liveRun()
	var log bytes.Buffer
	s.Log, s.DB, s.backlog = slog.New(slog.NewTextHandler(&log, nil)), p.Spoke.DB, Backlog(p.Spoke.DB, t.TempDir())
	page := commands.Recalled{From: 1, Through: 9}
	for range 9 {
		page.Tasks = append(page.Tasks, commands.TaskStanding{Task: askedFor(t, p, s.backlog), State: commands.Paused, Attempt: 1, Over: true, Code: -1})
	}
	slices.SortFunc(page.Tasks, func(a, b commands.TaskStanding) int { return strings.Compare(a.Task, b.Task) })
	first, known := page.Tasks[0].Task, page.Tasks[8].Task
	s.backlog.NoteBegun(known, 2) // as this spoke began
	var looked []string
	s.backlog.Found = func(_, task string) (int, error) {
		looked = append(looked, task)
		time.Sleep(5100 * time.Millisecond)
		return 2, nil
	}

	inTx(t, p, func(ctx context.Context, tx *store.Tx) error {
		_, err := s.takeRecalled(ctx, tx, p.Spoke.Conn, &page)
		return err
	})

	require.Equal(t, []string{first}, looked)
	require.Equal(t, 8, strings.Count(log.String(), "too slow to look for all"))
	rows := p.Spoke.Count(t, `SELECT count(*) FROM recalled WHERE task = ANY ($1::uuid[]) AND attempt = 2 AND NOT over`, []string{first, known})
	require.Equal(t, 2, rows, "these began")
	require.Equal(t, 2, p.Spoke.Count(t, `SELECT count(*) FROM recalled WHERE NOT over`), "the others have not, as far as is known")
}
