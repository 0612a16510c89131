package spoke_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

// A hub that orders another hub's task by its id, where the spoke has lost the row of it with a restore, gets nothing of that task: neither
// the agent that lives nor what is known of one that has ended. The order of the other hub that comes again is adopted as before.
func TestAnAttemptIsAdoptedForItsOwnHubOnly(t *testing.T) {
	t.Parallel()
	for name, is := range map[string]commands.State{"it runs": commands.Running, "it has ended unheard": commands.Completed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := meshtest.Plan{Lease: 5 * time.Minute}.Start(t, "attic")
			s, two := m.Spokes["attic"], second(t, m)
			m.Stop(t, "attic")
			backup := s.Backup(t)
			m.Start(t, "attic")
			gate := filepath.Join(t.TempDir(), "gate")
			task := order(t, m, "", "sh", "-c", `echo secret; until [ -e "$0" ]; do sleep 0.02; done`, gate)
			m.Await(t, task, commands.Running)
			meshtest.Await(t, "what it says", func() bool { return m.Stdout(t, task, false) == "secret\n" })
			s.Proxy.Cut()
			if is.Terminal() {
				require.NoError(t, os.WriteFile(gate, nil, 0o600))
				meshtest.Await(t, "its end", func() bool {
					return s.Count(t, `SELECT count(*) FROM tasks WHERE id = $1 AND is_terminal(state)`, task) == 1
				})
			}
			m.Stop(t, "attic")
			s.Restore(t, backup)
			m.Start(t, "attic")

			two.Order(t, hub.SpawnRequest{ID: task, Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"true"}}})
			v := two.Wait(t, task)

			require.Equal(t, []any{commands.Unavailable, commands.IDUsed}, []any{v.State, v.Reason})
			require.Empty(t, two.Stdout(t, task, false))
			require.Zero(t, s.Count(t, `SELECT count(*) FROM tasks WHERE id = $1`, task), "the place of the other's order is free")
			s.Proxy.Heal()
			meshtest.Await(t, "its own hub's order", func() bool {
				return s.Count(t, `SELECT count(*) FROM standing WHERE id = $1 AND attempt = 1 AND state = $2::text::task_state`, task, string(is)) == 1
			})
			require.NoError(t, os.WriteFile(gate, nil, 0o600))
			require.Equal(t, commands.Completed, m.Wait(t, task).State)
			require.Equal(t, "secret\n", m.Stdout(t, task, false), "it was not started again")
		})
	}
}

// A task that waits and whose attempt has the directory of another hub's by the time it is claimed could not start. Nothing of that directory
// is told, now or when its hub asks for output again, and nothing in it is touched.
func TestAClaimFindsTheDirectoryOfAnotherHub(t *testing.T) {
	t.Parallel()
	r, task := twoHubs(t)
	s := r.Spoke
	at, aside := filepath.Join(s.Dir, "agents", task), filepath.Join(t.TempDir(), "aside")
	require.NoError(t, os.Rename(at, aside))
	r.Spoke.Do(t, "POST", "/api/v1/workspaces/main/freezes", map[string]any{"scope": "instance", "reason": "the test says so"}, nil)
	again := r.Seal(t, &commands.Spawn{Task: task, Runtime: commands.RuntimeExec, Argv: []string{"true"}}, nil, nil)
	r.Send(t, commands.QueueRun, again.Envelope)
	r.Answer(t, again.ID, commands.AcceptedKind)
	require.NoError(t, os.Rename(aside, at))
	require.NoError(t, os.MkdirAll(filepath.Join(at, "1", "door"), 0o700)) // as of an agent that lives
	require.NoError(t, os.WriteFile(filepath.Join(at, "1", "door", "token"), []byte("its token"), 0o600))
	before := files(t, at)
	r.Spoke.Do(t, "POST", "/api/v1/workspaces/main/freezes/lift", map[string]any{"scope": "instance", "reason": "the test says so"}, nil)

	result := r.Answer(t, again.ID, commands.ResultKind).(*commands.Result)

	require.Equal(t, []any{commands.Unavailable, commands.IDUsed, commands.CouldNotStart}, []any{result.State, result.Reason, result.Outcome})
	require.Empty(t, result.Stdout.Tail)
	require.Contains(t, s.Log.String(), "the directory of an attempt is that of a task of another connection")
	var streams []commands.StoredStream
	for _, name := range commands.Streams {
		streams = append(streams, commands.StoredStream{Task: task, Attempt: 1, Stream: name})
	}
	asks := r.Seal(t, &commands.OutputStored{Streams: streams}, nil, nil)
	r.Send(t, commands.QueueControl, asks.Envelope)
	said := r.Answer(t, again.ID, commands.LogKind).(*commands.Log)
	require.Empty(t, said.Data)
	require.True(t, said.End.Cut)
	require.Equal(t, before, files(t, at))
}

// An agent whose start is not recorded yet and that makes its directory another connection's is ended when its spoke comes back.
func TestAnAgentThatDisownsItself(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s, file := m.Spokes["attic"], filepath.Join(t.TempDir(), "pid")
	task := m.Spawn(t, "attic", "sh", "-c", `setsid sleep 600 & printf %s "$1" >../control/connection; echo $! >"$0"; sleep 600`, file, meshtest.NewID())
	m.Await(t, task, commands.Running)
	var child int
	meshtest.Await(t, "its child", func() bool {
		raw, _ := os.ReadFile(file)
		_, err := fmt.Sscan(string(raw), &child)
		return err == nil
	})
	m.Stop(t, "attic")
	s.Exec(t, `DELETE FROM sessions WHERE task = $1`, task)

	m.Start(t, "attic")

	v := m.Wait(t, task)
	require.Equal(t, []any{commands.Unavailable, commands.IDUsed}, []any{v.State, v.Reason}, v.Sentence())
	p, err := tree.ReadProcess(child)
	require.True(t, err != nil || p.Gone(), "its child lives")
}

// A hub that recalls another hub's task, of which only the directory is left, is told what it is told of a task that was never here.
func TestWhatIsRecalledOfAnotherHubsDirectory(t *testing.T) {
	t.Parallel()
	r, task := twoHubs(t)
	var standing []commands.TaskStanding
	var asked []string
	for _, id := range []string{task, meshtest.NewID()} {
		order := r.Seal(t, &commands.Spawn{Task: id, Runtime: commands.RuntimeNoop}, nil, nil)
		asked = append(asked, order.ID)
		standing = append(standing, commands.TaskStanding{Task: id, Command: order.ID, SHA256: order.Body.String(), State: commands.Paused, Code: -1})
	}
	r.Says(func(b *commands.Heartbeat, _ *signing.Header) {
		b.Connection.Numbers.Recalled = &commands.Recalled{From: 1, Through: 128, Done: true, Tasks: standing}
	})
	r.Spoke.Exec(t, `UPDATE sequences SET recall_from = 1, last = 1 << 20 WHERE conn = $1`, r.Conn)

	var told [2]commands.Result
	for i, order := range asked {
		told[i] = *r.Answer(t, order, commands.ResultKind).(*commands.Result)
		told[i].Task = ""
	}

	require.Equal(t, told[1], told[0])
}

// twoHubs is a spoke of a rogue hub and of an honest one, and a task of the latter that has said something, and of which nothing is left but
// its directory.
func twoHubs(t *testing.T) (r *meshtest.Rogue, task string) {
	t.Helper()
	r = meshtest.Plan{}.Rogue(t)
	other := meshtest.Plan{Hub: "shop"}.Start(t)
	_, err := r.Spoke.JoinWith(t, other.Token(t, "attic", meshtest.NewProxy(t, other.Hub.Link)))
	require.NoError(t, err)
	other.AwaitLink(t, "attic")
	task = other.Spawn(t, "attic", "echo", "secret")
	other.Wait(t, task)
	require.Equal(t, "secret\n", other.Stdout(t, task, true))
	meshtest.Await(t, "that its output is stored", func() bool { return r.Spoke.Count(t, `SELECT count(*) FROM outputs`) == 0 })
	retained := r.Spoke.Count(t, `SELECT prune_tasks('0 seconds', 1000)`)
	require.Equal(t, 1, retained)
	return r, task
}

// files are those below a directory, with their contents.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	list := map[string]string{}
	require.NoError(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			raw, err := os.ReadFile(path)
			list[strings.TrimPrefix(path, dir)] = string(raw)
			return err
		}
		return err
	}))
	return list
}
