package spoke_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/output"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/internal/scale"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// talkative lets agents write as much as they like.
func talkative(b output.Bounds) meshtest.Plan {
	return meshtest.Plan{Policy: meshtest.Loose(strings.Replace(policy.Presets["open"], "limits:", "limits:\n  output: 1000000000", 1)), Output: b}
}

// gated is a shell command that runs text once the file gate is there.
func gated(gate, text string) []string {
	return []string{"sh", "-c", "while [ ! -e " + gate + " ]; do sleep 0.05; done; " + text}
}

// size returns how many bytes of files are in a directory.
func size(t testing.TB, dir string) (sum int64) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if info, err := d.Info(); err == nil {
				sum += info.Size()
			}
		}
		return nil
	}))
	return sum
}

// digest follows a task's standard output to its end and returns its length and
// its SHA-256.
func digest(t testing.TB, m *meshtest.Mesh, id string) (n int64, sum string) {
	t.Helper()
	h := sha256.New()
	m.EachLog(t, id, true, func(l hub.LogLine) {
		require.Nil(t, l.Dropped)
		if l.Stream == "stdout" {
			require.Equal(t, n, l.Offset)
			n += int64(len(l.Data))
			h.Write(l.Data)
		}
	})
	return n, hex.EncodeToString(h.Sum(nil))
}

func result(t testing.TB, m *meshtest.Mesh, id string) (r commands.Result) {
	t.Helper()
	require.NoError(t, json.Unmarshal(m.Wait(t, id).Result, &r))
	return r
}

// What an agent writes while there is no link is in its file and nowhere else, and
// all of it arrives when there is one.
// make chaos lets 300 MB wait.
func TestALongOutage(t *testing.T) {
	t.Parallel()
	bytes := scale.Larger(t, "SPAWNMESH_OUTAGE_BYTES", 3_000_000, 10_000_000)
	m := talkative(output.Bounds{Agent: 1 << 30}).Start(t, "attic")
	s, gate := m.Spokes["attic"], filepath.Join(t.TempDir(), "open")
	id := m.Spawn(t, "attic", gated(gate, fmt.Sprintf("head -c %d /dev/zero", bytes))...)
	m.Await(t, id, commands.Running)
	s.Proxy.Cut()
	require.NoError(t, os.WriteFile(gate, nil, 0o644))
	meshtest.Await(t, "the end of the agent", func() bool { return s.Count(t, `SELECT count(*) FROM leases`) == 0 })
	others := size(t, s.Dir) - size(t, filepath.Join(s.Dir, "agents"))
	require.Less(t, others, int64(1<<20), "bytes besides the attempt's files")

	s.Proxy.Heal()

	r := result(t, m, id)
	n, sum := digest(t, m, id)
	require.Equal(t, int64(bytes), n)
	require.Equal(t, r.Stdout.SHA256, sum)
	require.Less(t, size(t, filepath.Join(m.Hub.Dir, "nats")), min(int64(80<<20), int64(2*bytes)), "what waits in the hub's queues is bounded")
	m.Check(t)
}

// Whatever goes away while output is under way, all of it arrives, once.
func TestOutputUnderWay(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, m *meshtest.Mesh){
		"the link breaks": func(t *testing.T, m *meshtest.Mesh) {
			m.Spokes["attic"].Proxy.Cut()
			m.Spokes["attic"].Proxy.Heal()
		},
		"the spoke starts again": func(t *testing.T, m *meshtest.Mesh) {
			m.Stop(t, "attic")
			m.Start(t, "attic")
		},
		"the hub starts again": func(t *testing.T, m *meshtest.Mesh) {
			m.Stop(t, "hub")
			m.Start(t, "hub")
		},
		"the hub's message store is lost": func(t *testing.T, m *meshtest.Mesh) {
			m.Stop(t, "hub")
			require.NoError(t, os.RemoveAll(filepath.Join(m.Hub.Dir, "nats")))
			m.Start(t, "hub")
		},
		"the hub was restored from a backup without output": func(t *testing.T, m *meshtest.Mesh) {
			m.Stop(t, "hub")
			m.Hub.Exec(t, `DELETE FROM logs`)
			require.NoError(t, os.RemoveAll(filepath.Join(m.Hub.Dir, "logs")))
			m.Start(t, "hub")
		},
		"a crash left bytes behind the valid ones": func(t *testing.T, m *meshtest.Mesh) {
			m.Stop(t, "hub")
			for _, name := range segments(t, m) {
				f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
				require.NoError(t, err)
				_, err = f.WriteString("half a record")
				require.NoError(t, err)
				require.NoError(t, f.Close())
			}
			m.Start(t, "hub")
		},
	}
	for name, happens := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := talkative(output.Bounds{}).Start(t, "attic")
			gate := filepath.Join(t.TempDir(), "open")
			id := m.Spawn(t, "attic", "sh", "-c", "seq 120000; while [ ! -e "+gate+" ]; do sleep 0.05; done; seq 120000")
			meshtest.Await(t, "some of its output", func() bool { return m.Hub.Count(t, `SELECT count(*) FROM log_streams WHERE through > 200000`) == 1 })

			happens(t, m)

			require.NoError(t, os.WriteFile(gate, nil, 0o644))
			r := result(t, m, id)
			n, sum := digest(t, m, id)
			require.Equal(t, r.Stdout.Size, n)
			require.Equal(t, r.Stdout.SHA256, sum)
			m.Check(t)
		})
	}
}

// segments returns the files of all segments at the hub.
func segments(t testing.TB, m *meshtest.Mesh) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(m.Hub.Dir, "logs", "*", "*", "*"))
	require.NoError(t, err)
	require.NotEmpty(t, list)
	return list
}

// Agents take turns: of two that have written as much, neither waits for the other.
func TestAgentsShareTheLink(t *testing.T) {
	t.Parallel()
	m := talkative(output.Bounds{}).Start(t, "attic")
	s, gate := m.Spokes["attic"], filepath.Join(t.TempDir(), "open")
	var ids []string
	for range 2 {
		ids = append(ids, m.Spawn(t, "attic", gated(gate, "head -c 3000000 /dev/zero")...))
	}
	for _, id := range ids {
		m.Await(t, id, commands.Running)
	}
	s.Proxy.Cut()
	require.NoError(t, os.WriteFile(gate, nil, 0o644))
	meshtest.Await(t, "the end of both", func() bool { return s.Count(t, `SELECT count(*) FROM leases`) == 0 })

	s.Proxy.Heal()

	var lines [2][]hub.LogLine
	for i, id := range ids {
		m.Wait(t, id)
		lines[i] = m.Logs(t, id, true)
	}
	for i, other := range []int{1, 0} {
		end, before := lines[i][len(lines[i])-1].At, int64(0)
		for _, l := range lines[other] {
			if !l.At.After(end) {
				before += int64(len(l.Data))
			}
		}
		require.Greater(t, before, int64(1_500_000), "bytes of the other one that came before this one's last")
	}
	m.Check(t)
}

// However short an agent's life is, what it wrote is remembered before its end is.
func TestOutputOfShortLivesIsRemembered(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Slots: 1}.Start(t, "attic")
	s, gate := m.Spokes["attic"], filepath.Join(t.TempDir(), "open")
	first := m.Spawn(t, "attic", gated(gate, "echo hi")...)
	m.Await(t, first, commands.Running)
	ids := []string{first}
	for range 20 {
		ids = append(ids, m.Spawn(t, "attic", "echo", "hi"))
	}
	meshtest.Await(t, "that the spoke has accepted them", func() bool { return m.Agent(t, ids[20]).AcceptedAt != nil })
	s.Proxy.Cut()

	require.NoError(t, os.WriteFile(gate, nil, 0o644))

	meshtest.Await(t, "the end of all", func() bool { return s.Count(t, `SELECT count(*) FROM tasks WHERE NOT is_terminal(state)`) == 0 })
	require.Equal(t, len(ids), s.Count(t, `SELECT count(*) FROM outputs`))
	s.Proxy.Heal()
	for _, id := range ids {
		require.Equal(t, "hi\n", m.Stdout(t, id, true))
	}
	m.Check(t)
}

// An agent that writes without end costs what the spoke's policy keeps of it, on
// both sides.
func TestAnEndlessWriterCostsItsCap(t *testing.T) {
	t.Parallel()
	const most = 1_000_000
	m := meshtest.Plan{Policy: meshtest.Loose(strings.Replace(policy.Presets["open"], "limits:", "limits:\n  output: 1000000", 1))}.Start(t, "attic")
	id := m.Spawn(t, "attic", "head", "-c", "200000000", "/dev/zero")

	r := result(t, m, id)

	require.Equal(t, int64(200_000_000), r.Stdout.Bytes)
	require.Equal(t, int64(200_000_000-most), r.Stdout.Dropped)
	require.Len(t, m.Stdout(t, id, true), int(r.Stdout.Size))
	require.Less(t, r.Stdout.Size, int64(most+200))
	require.Less(t, size(t, filepath.Join(m.Spokes["attic"].Dir, "agents")), int64(most+100_000))
	require.Less(t, size(t, filepath.Join(m.Hub.Dir, "logs")), int64(most+100_000))
	m.Check(t)
}

// Who follows an agent whose spoke is away is told so, and until when its output is
// here.
func TestFollowingAnAgentThatIsAway(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s, gate := m.Spokes["attic"], filepath.Join(t.TempDir(), "open")
	id := m.Spawn(t, "attic", "sh", "-c", "echo one; while [ ! -e "+gate+" ]; do sleep 0.05; done; echo two")
	meshtest.Await(t, "some of its output", func() bool { return m.Stdout(t, id, false) == "one\n" })
	s.Proxy.Cut()
	meshtest.Await(t, "that the hub sees it away", func() bool { return !m.View(t, "attic").Linked })
	require.NoError(t, os.WriteFile(gate, nil, 0o644))

	var away *hub.Unlinked
	var text string
	m.EachLog(t, id, true, func(l hub.LogLine) {
		text += string(l.Data)
		if l.Waiting != nil {
			away = l.Waiting
			s.Proxy.Heal()
		}
	})

	require.NotNil(t, away)
	require.Equal(t, "attic", away.Spoke)
	require.NotNil(t, away.Until)
	require.Equal(t, "one\ntwo\n", text)
	m.Check(t)
}

// Who follows an agent whose connection is suspended is told that nothing comes before somebody resumes it.
func TestFollowingAnAgentOfASuspendedConnection(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	id := m.Spawn(t, "attic", "echo", "one")
	m.Wait(t, id)
	id = m.Spawn(t, "attic", "sleep", "1")
	m.Await(t, id, commands.Running)
	m.Turn(t, "attic", "suspend")
	meshtest.Await(t, "that the hub sees it away", func() bool { return !m.View(t, "attic").Linked })

	var said []hub.Unlinked
	m.EachLog(t, id, true, func(l hub.LogLine) {
		if l.Waiting != nil {
			if said = append(said, *l.Waiting); l.Waiting.Suspended {
				m.Turn(t, "attic", "resume")
			}
		}
	})

	require.NotEmpty(t, said)
	require.True(t, said[0].Suspended)
	require.Nil(t, said[0].Until)
	m.Check(t)
}

// A hub that was restored from a backup asks by itself for the output that it had, of every attempt,
// or hears that it is gone.
func TestOutputThatAHubHasLost(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	ends := func(argv ...string) string {
		id := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: argv, MaxRetries: 1}})
		m.Wait(t, id)
		m.EachLog(t, id, true, func(hub.LogLine) {})
		meshtest.Await(t, "that it is sent", func() bool { return s.Count(t, `SELECT count(*) FROM outputs`) == 0 })
		return id
	}
	kept, gone, unknown := ends("head", "-c", "200000", "/dev/zero"), ends("head", "-c", "100000", "/dev/zero"), ends("echo", "hi")
	twice := ends("sh", "-c", `echo try; mkdir "$0"`, filepath.Join(t.TempDir(), "absent", "absent"))
	other := meshtest.NewID()
	m.Stop(t, "hub")
	m.Hub.Exec(t, `DELETE FROM logs`)
	m.Hub.Exec(t, `UPDATE mirrors SET task = $2 WHERE task = $1`, unknown, other)
	require.NoError(t, os.RemoveAll(filepath.Join(s.Dir, "agents", gone)))

	m.Start(t, "hub")

	meshtest.Await(t, "that the hub has asked by itself", func() bool {
		return m.Hub.Count(t, `SELECT count(*) FROM log_streams WHERE stream = 'stdout' AND ended IS NOT NULL`) == 5
	})
	n, sum := digest(t, m, kept)
	require.Equal(t, int64(200_000), n)
	require.Equal(t, result(t, m, kept).Stdout.SHA256, sum)
	require.Equal(t, "try\ntry\n", m.Stdout(t, twice, false), "of every attempt")
	for _, id := range []string{gone, other} {
		marks := map[string]output.Dropped{}
		m.EachLog(t, id, true, func(l hub.LogLine) {
			if l.Dropped != nil {
				marks[l.Stream] = *l.Dropped
			}
		})
		require.Equal(t, output.Dropped{By: "spoke", Cut: true}, marks["stdout"])
	}
}
