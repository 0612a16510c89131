package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/store"
)

// A log whose hub stops while it is read goes on when the hub is back: each byte is shown once,
// and a mark names what was dropped meanwhile of what had not been shown.
func TestALogGoesOnWhereItWasCutOff(t *testing.T) {
	t.Parallel()
	m := startHub(t, "--output-per-agent", fmt.Sprint(4<<20))
	withCluster(t, filepath.Join(m.Dir, "attic"))
	require.NoError(t, m.AddSpoke(t.Context(), "attic", loose, "--heartbeat", "1s"))
	h := hand{t: t, dir: m.Hub.Dir}

	t.Run("all of what is here", func(t *testing.T) { restartedHubIsRead(t, m, h) })
	t.Run("what an agent goes on to write", func(t *testing.T) { restartedHubHasDropped(t, m, h) })
}

// restartedHubIsRead reads a log that is more than a pipe and the sockets hold.
func restartedHubIsRead(t *testing.T, m *fleet.Mesh, h hand) {
	h.t = t
	id := h.spawn("--spoke", "attic", "--", "seq", "1", "400000")
	want := h.do("logs", "-f", id)
	require.True(t, strings.HasPrefix(want, "1\n2\n") && strings.HasSuffix(want, "\n400000\n"))
	jobs := []*terminalJob{h.begin("logs", id), h.begin("logs", "-f", id)}
	for _, job := range jobs {
		job.reads("1\n2\n")
	}

	require.NoError(t, m.Hub.Stop(t.Context()))
	require.NoError(t, m.Hub.Start(t.Context()))

	for _, job := range jobs {
		got := job.end()
		require.Equal(t, 0, got.code, got.err)
		require.True(t, "1\n2\n"+got.out == want, "%d bytes of %d", 4+len(got.out), len(want))
		require.Contains(t, got.err, "the hub does not answer; the log of agent "+commands.ShortID(id)+" is not shown to its end, and this waits for 1m")
	}
}

// restartedHubHasDropped follows a log, and takes nothing while the hub drops the most of it.
func restartedHubHasDropped(t *testing.T, m *fleet.Mesh, h hand) {
	h.t = t
	g := newGate(t)
	id := h.spawn("--spoke", "attic", "--", "sh", "-c", "echo one; "+g.wait()+"; seq 1 1000000")
	job := h.begin("logs", "-f", "-o", "ndjson", id)
	lines := bufio.NewReader(job.out)
	next := int64(0)
	take := func() (l hub.LogLine) {
		for l.Stream == "" { // the spoke may not be linked for a moment
			raw, err := lines.ReadBytes('\n')
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(raw, &l))
		}
		require.Equal(t, next, l.Offset)
		next += int64(len(l.Data))
		return l
	}
	require.Equal(t, "one\n", string(take().Data))
	require.NoError(t, job.cmd.Process.Signal(syscall.SIGSTOP))

	require.NoError(t, m.Hub.Stop(t.Context()))
	g.open(t)
	require.NoError(t, m.Hub.Start(t.Context()))
	h.until(id, func(v hub.AgentView) bool {
		return v.State.Terminal() && len(v.Output) > 0 && v.Output[0].Ended != nil && v.Output[0].Dropped > 0
	})
	require.NoError(t, job.cmd.Process.Signal(syscall.SIGCONT))

	d := take().Dropped
	require.NotNil(t, d)
	require.Equal(t, int64(len("one\n")), d.From)
	for next += d.Bytes; next < 4+6_888_896; {
		require.Nil(t, take().Dropped)
	}
	require.Zero(t, job.end().code)
}

// Who reads a log bears with a hub that is away for so long each time, and not for so long in all.
func TestPatienceWithAHubBeginsAnewWhenSomethingCame(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		sends string
		anew  bool
	}{
		"a piece came":           {"id: 40\ndata: {\"seq\":40,\"attempt\":1,\"stream\":\"stdout\",\"offset\":0,\"data\":\"aGkK\"}\n\n", true},
		"nothing new came":       {"data: {\"waiting\":{\"spoke\":\"attic\"}}\n\n", false},
		"it was cut off at once": {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, stop := control.Within(t.Context(), t.TempDir(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(tt.sends))
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}))
			defer stop()
			var shown bytes.Buffer
			r := (&app{out: &shown, err: &shown}).newLogReader(c, "A1", logFlags{last: -1})
			r.away = time.Now().Add(-2 * patience)

			err := r.stream(t.Context(), true)

			require.Equal(t, commands.Unreachable, commands.CodeOf(err))
			require.Equal(t, tt.anew, r.away.IsZero())
		})
	}
}

// A log that lacks something says how much, and whether that is still to come.
func TestMarksOfALog(t *testing.T) {
	t.Parallel()
	lacks := hub.Missing{Spoke: "attic", Stream: "stdout", Attempt: 1, From: 100, Bytes: 200}
	never := lacks
	never.Never, never.Gaps = true, []commands.Gap{{From: 50, To: 950, At: 50}}
	markless := never
	markless.Bytes = 0
	late := lacks
	late.Bytes = 0
	lost := never
	lost.Gaps, lost.Cut = nil, true
	for _, c := range []struct {
		m    hub.Missing
		want string
	}{
		{lacks, "[stdout of attempt 1: 200 bytes from byte 100 on are not here yet; logs -f waits for them]"},
		{late, "[stdout of attempt 1: its end is not here yet; logs -f waits for it]"},
		{never, "[stdout of attempt 1: 200 bytes from byte 100 on did not arrive before the connection with attic ended; 900 bytes from byte 50 on were dropped by the spoke]"},
		{markless, "[stdout of attempt 1: 900 bytes from byte 50 on were dropped by the spoke]"},
		{hub.Missing{Spoke: "attic", Stream: "stdout", Attempt: 1, From: 100, Never: true}, "[stdout of attempt 1: what came after byte 100 did not arrive before the connection with attic ended]"},
		{lost, "[stdout of attempt 1: 200 bytes from byte 100 on did not arrive before the connection with attic ended; the spoke has lost the rest, if there was any]"},
	} {
		require.Equal(t, c.want, markOf(hub.LogLine{Missing: &c.m}))
	}
}

// What is not linked is waited for; what is suspended comes only if somebody resumes it.
func TestWhyNothingOfALogComes(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 8, 57, 21, 0, time.Local)
	for want, w := range map[string]hub.Unlinked{
		"attic is not linked; no output is here yet, and this waits until it is linked again":                                         {Spoke: "attic"},
		"attic is not linked; its output until 2026-03-01 08:57:21 is here, and this waits until it is linked again":                  {Spoke: "attic", Until: &at},
		"the connection with attic is suspended; no output is here yet, and no more comes until it is resumed":                        {Spoke: "attic", Suspended: true},
		"the connection with attic is suspended; its output until 2026-03-01 08:57:21 is here, and no more comes until it is resumed": {Spoke: "attic", Suspended: true, Until: &at},
	} {
		require.Equal(t, want, markOf(hub.LogLine{Waiting: &w}))
	}
}

// An agent that was killed while it was starting may have begun; one that could not be started has not.
func TestWhyThereIsNoOutput(t *testing.T) {
	t.Parallel()
	const id = "01a2199f-0000-7000-8000-000000000001"
	for want, result := range map[string]string{
		"agent 00000001 ended while attempt 1 was starting; no output of it is here: cancelled: killed": `{"state":"cancelled","outcome":"killed","attempt":1,"summary":"killed"}`,
		"agent 00000001 never started, so it wrote nothing: cancelled: killed":                          `{"state":"cancelled","summary":"killed"}`,
		"agent 00000001 never started, so it wrote nothing: cancelled: there is no program nothing":     `{"state":"cancelled","outcome":"unavailable","attempt":1,"summary":"there is no program nothing"}`,
	} {
		v := hub.AgentView{Mirror: store.Mirror{Task: id, State: commands.Cancelled, Attempt: 1, Result: json.RawMessage(result)}}
		require.Equal(t, want, whyNoOutput(v))
	}
}
