package spoke_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/spoke/door"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

// What an agent keeps is in a file that only it reads, for the attempt that follows the loss of this one, at the level that the agent has.
func TestTheNextAttemptGetsTheCheckpoint(t *testing.T) {
	t.Parallel()
	m := confined(t, "")
	s := m.Spokes["attic"]
	task := resumable(t, m)
	c := doorOf(s, task, 1)
	keep := func(data string) error { return c.Send(t.Context(), "PUT", "/v1/checkpoint", []byte(data), nil) }
	require.NoError(t, keep("old"))
	require.NoError(t, keep("new\x00\xff\n"))
	require.NoError(t, c.Do(t.Context(), "PUT", "/v1/session", door.Session{ID: "abc-1"}, nil))
	require.Equal(t, commands.PayloadTooLarge, commands.CodeOf(keep(strings.Repeat("x", 1<<20+1))))
	require.Equal(t, commands.Validation, commands.CodeOf(c.Do(t.Context(), "PUT", "/v1/session", door.Session{ID: strings.Repeat("x", 257)}, nil)))
	files, err := filepath.Glob(filepath.Join(s.Dir, "checkpoints", task, "*"))
	require.NoError(t, err)
	require.Len(t, files, 1, "the old one is gone")

	shim := s.Count(t, `SELECT shim_pid FROM sessions WHERE task = $1`, task)
	m.Stop(t, "attic")
	require.NoError(t, syscall.Kill(shim, syscall.SIGKILL))
	m.Start(t, "attic")
	resumes(t, s, task, "session:abc-1\nnew\x00\xff\n")
	require.Equal(t, commands.StaleAttempt, commands.CodeOf(func() error {
		c := doorOf(s, task, 2)
		s.Exec(t, `UPDATE leases SET epoch = epoch + 1 WHERE task = $1`, task)
		return c.Send(t.Context(), "PUT", "/v1/checkpoint", []byte("late"), nil)
	}()))
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM task_checkpoints WHERE task = $1 AND size = 6`, task))
	kept, err := filepath.Glob(filepath.Join(s.Dir, "checkpoints", task, "*"))
	require.NoError(t, err)
	require.Equal(t, files, kept, "what is said too late takes nothing away")
}

// resumable orders an agent that writes which session and checkpoint it was given, and that runs again where it is lost.
func resumable(t *testing.T, m *meshtest.Mesh) (task string) {
	t.Helper()
	order := hub.SpawnRequest{Spoke: "attic", Spawn: shell(`echo "session:$SPAWNMESH_SESSION"; cat "${SPAWNMESH_CHECKPOINT:-/dev/null}"; sleep 600`)}
	order.Spawn.OnLoss, order.Spawn.MaxRetries = commands.LossReruns, 3
	task = m.Order(t, order)
	m.Await(t, task, commands.Running)
	return task
}

// resumes waits until the second attempt of a task was given what out says; its back-off is not waited for.
func resumes(t *testing.T, s *meshtest.Spoke, task, out string) {
	t.Helper()
	require.Eventually(t, func() bool {
		s.Exec(t, `UPDATE due SET at = now()`)
		return s.Count(t, `SELECT count(*) FROM leases WHERE task = $1 AND attempt = 2 AND started_at IS NOT NULL`, task) == 1
	}, meshtest.Patience, 50*time.Millisecond)
	require.Eventually(t, func() bool {
		raw, _ := os.ReadFile(filepath.Join(s.Dir, "agents", task, "2", "control", "stdout"))
		return string(raw) == out
	}, meshtest.Patience, 50*time.Millisecond)
}

// After a restart of its host an agent is known to be gone, whoever has its pid now, and the next attempt gets its last checkpoint.
func TestTheNextAttemptAfterARebootGetsTheCheckpoint(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	task := resumable(t, m)
	c := doorOf(s, task, 1)
	require.NoError(t, c.Send(t.Context(), "PUT", "/v1/checkpoint", []byte("a quarter"), nil))
	require.NoError(t, c.Send(t.Context(), "PUT", "/v1/checkpoint", []byte("half of it"), nil))
	require.NoError(t, c.Do(t.Context(), "PUT", "/v1/session", door.Session{ID: "abc-1"}, nil))
	shim, agent := s.Count(t, `SELECT shim_pid FROM sessions WHERE task = $1`, task), s.Count(t, `SELECT pid FROM sessions WHERE task = $1`, task)
	m.Stop(t, "attic")
	require.NoError(t, syscall.Kill(shim, syscall.SIGKILL)) // nothing outlives the kernel
	if err := syscall.Kill(-agent, syscall.SIGKILL); err != nil {
		require.ErrorIs(t, err, syscall.ESRCH, "an agent dies with its shim")
	}
	stranger := exec.Command("sleep", "600") // a process of this run of the kernel that has the number of the shim, and began as long after its start
	require.NoError(t, stranger.Start())
	gone := make(chan error, 1)
	go func() { gone <- stranger.Wait() }()
	defer func() { _, _ = stranger.Process.Kill(), <-gone }()
	now, err := tree.ReadProcess(stranger.Process.Pid)
	require.NoError(t, err)
	s.Exec(t, `UPDATE sessions SET boot_id = 'earlier', pid = $2, shim_pid = $2, shim_start = $3 WHERE task = $1`, task, now.Pid, now.Start)

	m.Start(t, "attic")

	resumes(t, s, task, "session:abc-1\nhalf of it")
	meshtest.Await(t, "the end of the first attempt at the hub", func() bool { return len(m.Agent(t, task).Attempts) == 1 })
	end := m.Agent(t, task).Attempts[0]
	require.Equal(t, commands.Interrupted, end.Outcome)
	require.Contains(t, end.Exit.Error, "the host was restarted")
	select {
	case err := <-gone:
		gone <- err
		require.Fail(t, "what has its number is not left alone", "%v", err)
	default:
	}
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+task+"/kill", map[string]any{"reason": "enough", "grace_ms": 0}, nil)
	m.Wait(t, task)
	m.Check(t)
}

// While the database answers with an error nothing of what an agent wants to keep stays on the disk, and what counts does. What is
// left of commits that were not answered is removed when it gets too much.
func TestWhatIsNotCommittedIsNotKept(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	task := m.Spawn(t, "attic", "sleep", "600")
	m.Await(t, task, commands.Running)
	c := doorOf(s, task, 1)
	keep := func(data string) error { return c.Send(t.Context(), "PUT", "/v1/checkpoint", []byte(data), nil) }
	dir := filepath.Join(s.Dir, "checkpoints", task)
	files := func() (names []string) {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	require.NoError(t, keep("old"))
	old := files()
	require.Len(t, old, 1)
	s.Exec(t, `CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no room'; END $$`)
	s.Exec(t, `CREATE TRIGGER fails BEFORE INSERT ON task_checkpoints FOR EACH ROW EXECUTE FUNCTION fails()`)

	for _, data := range []string{"one", "two", "old"} {
		require.Error(t, keep(data))
		require.Equal(t, old, files(), data)
	}
	for i := range 4 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, strings.Repeat(string(rune('a'+i)), 64)), nil, 0o600))
	}
	require.Error(t, keep("three"))
	require.Equal(t, old, files())

	s.Exec(t, `DROP TRIGGER fails ON task_checkpoints`)
	require.NoError(t, keep("new"))
	require.Len(t, files(), 1)
	require.NotEqual(t, old, files())
}

// A checkpoint whose disk fails is waited for: no attempt begins anew for it.
func TestACheckpointWaitsForItsDisk(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	task := resumable(t, m)
	require.NoError(t, doorOf(s, task, 1).Send(t.Context(), "PUT", "/v1/checkpoint", []byte("kept\n"), nil))
	shim := s.Count(t, `SELECT shim_pid FROM sessions WHERE task = $1`, task)
	m.Stop(t, "attic")
	require.NoError(t, syscall.Kill(shim, syscall.SIGKILL))
	mend := failingDisk(t, filepath.Join(s.Dir, "checkpoints", task))
	m.Start(t, "attic")
	if mend == nil {
		return
	}
	later := func(pattern string) []string {
		s.Exec(t, `UPDATE due SET at = now()`)
		list, err := filepath.Glob(filepath.Join(s.Dir, "agents", task, "[2-9]*", pattern))
		require.NoError(t, err)
		return list
	}
	require.Eventually(t, func() bool { return len(later("control")) > 0 }, meshtest.Patience, 50*time.Millisecond, "it is tried")

	mend()

	require.Eventually(t, func() bool { return len(later("control/stdout")) > 0 }, meshtest.Patience, 50*time.Millisecond)
	out := later("control/stdout")[0]
	require.Eventually(t, func() bool {
		raw, _ := os.ReadFile(out)
		return strings.Count(string(raw), "\n") > 1
	}, meshtest.Patience, 50*time.Millisecond, "it began anew")
	raw, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Equal(t, "session:\nkept\n", string(raw))
}
