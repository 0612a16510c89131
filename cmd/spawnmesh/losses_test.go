package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
)

// A victim is an agent of which each attempt says in a file of its number which processes it and its shim are.
type victim struct {
	hand
	id, dir string
	sleeps  []string // what it runs
}

// victim spawns one that sleeps until somebody ends it.
func (h hand) victim(mark string, flags ...string) victim {
	h.t.Helper()
	v := victim{h, "", h.t.TempDir(), []string{"sleep", mark + strconv.Itoa(os.Getpid())}}
	script := `echo $$ $PPID >"$0/new"; mv "$0/new" "$0/$SPAWNMESH_ATTEMPT"; exec ` + strings.Join(v.sleeps, " ")
	v.id = h.spawn(append(append([]string{"--spoke", "attic"}, flags...), "--", "sh", "-c", script, v.dir)...)
	return v
}

// attempt waits until an attempt runs as far as the hub knows, and returns its process and its shim.
func (v victim) attempt(n int) (agent, shim int) {
	v.t.Helper()
	v.until(v.id, func(s hub.AgentView) bool { return s.State == commands.Running && s.Attempt == n })
	var raw []byte
	require.NoError(v.t, fleet.Poll(v.t.Context(), time.Minute, "waiting for the processes of the attempt", func() (bool, error) {
		var err error
		raw, err = os.ReadFile(filepath.Join(v.dir, strconv.Itoa(n)))
		return err == nil, ignoreAbsent(err)
	}))
	fields := strings.Fields(string(raw))
	require.Len(v.t, fields, 2)
	agent, err := strconv.Atoi(fields[0])
	require.NoError(v.t, err)
	shim, err = strconv.Atoi(fields[1])
	require.NoError(v.t, err)
	return agent, shim
}

// gone waits until nothing of it runs, and alone until one attempt does.
func (v victim) gone()  { v.processes(0) }
func (v victim) alone() { v.processes(1) }

func (v victim) processes(n int) {
	v.t.Helper()
	require.NoError(v.t, fleet.Poll(v.t.Context(), time.Minute, "waiting until it has so many processes: "+strconv.Itoa(n), func() (bool, error) { return processes(v.t, v.sleeps...) == n, nil }))
}

// why is what why says of an agent, the text of one reason a line.
func (h hand) why(id string) string {
	h.t.Helper()
	var w api.TaskWhy
	h.read(&w, 0, "why", id)
	var lines []string
	for _, r := range w.Reasons {
		lines = append(lines, r.Text+" | "+r.Fix)
	}
	return strings.Join(lines, "\n")
}

// listed is an agent as the list of them has it.
func (h hand) listed(id string) (found agentView) {
	h.t.Helper()
	var list []agentView
	h.read(&list, 0, "agents")
	for _, v := range list {
		if v.Task == id {
			found = v
		}
	}
	require.Equal(h.t, id, found.Task)
	return found
}

// An agent that somebody else ends on its host, or whose shim ends so, is run again as often as its order says. The record of each
// attempt says what ended it, and that of the last one is the end of the agent.
func TestAnAgentThatIsKilledFromOutside(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	for name, tt := range map[string]struct {
		mark    string
		shim    bool // it is the shim that is killed
		outcome commands.Outcome
		reason  commands.Reason // of each attempt
		says    string
	}{
		"its process": {"598.1", false, commands.AttemptFailed, commands.NoReason, "ended by SIGKILL"},
		"its shim":    {"598.2", true, commands.Interrupted, commands.ExecutorDied, "the shim ended without a record"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := hand{t: t, dir: m.Hub.Dir}
			v := h.victim(tt.mark, "--max-retries", "2", "--backoff", "1ms")

			for n := 1; n <= 3; n++ {
				agent, shim := v.attempt(n)
				if tt.shim {
					agent = shim
				}
				v.alone()
				require.NoError(t, syscall.Kill(agent, syscall.SIGKILL))
			}

			ended := h.ends(v.id)
			v.gone()
			require.Equal(t, []any{commands.Failed, commands.RetriesExhausted, 3}, []any{ended.State, ended.Reason, ended.Attempt})
			require.Len(t, ended.Attempts, 2, "those that another one follows")
			for _, e := range ended.Attempts {
				require.Equal(t, []any{tt.outcome, tt.reason}, []any{e.Outcome, e.Reason})
				require.Equal(t, tt.says, (&commands.Result{Exit: e.Exit}).Sentence())
			}
			require.Equal(t, tt.outcome, resultOf(ended).Outcome)
			require.Contains(t, h.why(v.id), "it has failed (no retry is left): "+tt.says+" | spawnmesh retry "+commands.ShortID(v.id))
			row := h.listed(v.id)
			require.Equal(t, commands.Failed, row.State)
			require.Equal(t, []any{3, tt.says}, []any{row.LastError.Attempt, row.LastError.Text})
		})
	}
}

// An agent that shows no sign of work any more is said to be hung, which ends nothing. One that has an estimate is warned of, and then
// interrupted; the other one goes on.
func TestAnAgentThatStandsStill(t *testing.T) {
	t.Parallel()
	m := startHub(t, "--hung-after", "1s")
	withCluster(t, filepath.Join(m.Dir, "attic"))
	require.NoError(t, m.AddSpoke(t.Context(), "attic", loose, "--heartbeat", "1s", "--hung-after", "1s", "--overrun-after", "1s", "--overrun-patience", "10s"))
	h := hand{t: t, dir: m.Hub.Dir}
	v, other := h.victim("598.3", "--estimate", "1s"), h.victim("598.4")

	h.until(v.id, func(s hub.AgentView) bool {
		return s.Overrun && s.Verdict != nil && s.Verdict.Word == commands.Hung
	})
	said := h.why(v.id)
	require.Contains(t, said, "it runs much longer than estimated")
	require.Contains(t, said, "it seems hung: no output, progress, heartbeat or processor time since it was started")
	require.Contains(t, said, "spawnmesh cancel "+commands.ShortID(v.id))

	ended := h.ends(v.id)
	v.gone()
	require.Equal(t, []any{commands.Failed, commands.Overrun, 1}, []any{ended.State, ended.Reason, ended.Attempt})
	require.Contains(t, h.why(v.id), "it has failed (overran its estimate)")
	require.Equal(t, "overran its estimate", h.listed(v.id).Words())
	host := hand{t: t, dir: m.Spokes["attic"].Dir}
	require.Equal(t, 2, strings.Count(host.do("audit", "list", "--object", v.id), "task.overrun"), "the warning, and the end")
	require.NotContains(t, h.why(other.id), "longer than estimated")
	hung := h.until(other.id, func(s hub.AgentView) bool { return s.Verdict != nil && s.Verdict.Word == commands.Hung })
	require.Equal(t, []any{commands.Running, 1}, []any{hung.State, hung.Attempt})
	h.do("kill", other.id, "--grace", "0s", "--reason", "enough")
	require.Equal(t, commands.Cancelled, h.ends(other.id).State)
}

// The agents of a spoke that is gone are ended by their shims when its lease has ended. Its hub says that nothing is heard of them, and
// what helps; when the spoke is back it says what became of each, and one that may be repeated is run again.
func TestASpokeThatIsGone(t *testing.T) {
	t.Parallel()
	m := startMesh(t, "--heartbeat", "200ms", "--lease", "4s")
	h, attic := hand{t: t, dir: m.Hub.Dir}, m.Spokes["attic"]
	again, once := h.victim("598.5", "--on-loss", "rerun", "--backoff", "1ms"), h.victim("598.6")
	again.attempt(1)
	once.attempt(1)

	attic.Kill()
	for _, v := range []victim{again, once} {
		v.gone()
		cut := h.until(v.id, func(s hub.AgentView) bool { return s.Verdict != nil && s.Verdict.Word == commands.CutOff })
		require.Contains(t, cut.Verdict.Evidence, "attic was heard last")
		require.Equal(t, commands.Running, cut.State, "as it said last")
		require.Equal(t, commands.CutOff, h.listed(v.id).Verdict.Word)
		require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting until its lease has ended as far as its hub knows", func() (bool, error) {
			said := h.why(v.id)
			return strings.Contains(said, "when the host is back, it says what became of the agent") && strings.Contains(said, "connections revoke attic"), nil
		}))
	}
	require.NoError(t, attic.Start(t.Context()))

	lost := h.ends(once.id)
	require.Equal(t, []any{commands.Failed, commands.ExecutorDied, 1}, []any{lost.State, lost.Reason, lost.Attempt})
	require.Contains(t, h.why(once.id), "it was lost: the lease was not renewed; what it had done until then stays done")
	agent, _ := again.attempt(2)
	again.alone()
	require.NoError(t, syscall.Kill(agent, syscall.SIGTERM))
	ended := h.ends(again.id)
	require.Equal(t, commands.Failed, ended.State)
	require.Equal(t, []any{commands.Interrupted, "the lease was not renewed"}, []any{ended.Attempts[0].Outcome, ended.Attempts[0].Exit.Error})
}
