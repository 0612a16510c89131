package main

import (
	"bufio"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
)

// lines returns what reads the next line that the job prints.
func (j *terminalJob) lines() func() string {
	r := bufio.NewReader(j.out)
	return func() string {
		text, err := r.ReadString('\n')
		if err != nil {
			_ = j.cmd.Wait() // then all that it said is there
		}
		require.NoError(j.t, err, "%s", j.err)
		return strings.TrimSuffix(text, "\n")
	}
}

// Who follows a hub at a terminal hears of each change once, also while the hub is started again, and lists show what
// has changed.
func TestEventsAtATerminal(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	h := hand{t: t, dir: m.Hub.Dir}
	following := h.begin("events", "-f", "--since", "0", "-o", "ndjson")
	next := following.lines()
	watching := h.begin("agents", "-w", "--spoke", "attic")

	shown := watching.lines()
	g := newGate(t)
	id := h.spawn("--spoke", "attic", "--", "sh", "-c", g.wait()+"; exit 3")
	require.Regexp(t, `^ID +SPOKE +STATE +AGE +COMMAND$`, shown())
	require.NoError(t, m.Hub.Stop(t.Context()))
	require.NoError(t, m.StartHub(t.Context()))
	g.open(t)
	h.ends(id)

	at, states := int64(0), []string{}
	for len(states) == 0 || states[len(states)-1] != "failed" {
		var l api.EventLine
		require.NoError(t, json.Unmarshal([]byte(next()), &l))
		require.Equal(t, at+1, l.Event.Seq)
		if at = l.Event.Seq; l.Event.Task == id {
			require.Equal(t, "attic", l.Event.Spoke)
			states = append(states, l.Event.State)
		}
	}
	require.Equal(t, "queued", states[0])
	for row := ""; !strings.Contains(row, "failed: exit 3"); {
		row = shown()
		require.True(t, strings.HasPrefix(row, commands.ShortID(id)+"  attic  "), row)
	}
	var lines []api.EventLine
	h.read(&lines, 0, "events", "-n", "1000")
	require.Equal(t, int64(1), lines[0].Event.Seq)
	h.read(&lines, 0, "events", "-n", "2")
	require.Len(t, lines, 2)
	require.Regexp(t, `(?m)^[-0-9]{10} [0-9:]{8}  \d+  agent `+commands.ShortID(id)+` on attic: failed, attempt 1$`, h.do("events"))
	require.Contains(t, h.do("events"), "this instance was started")
	h.refused(exitMisuse, "--since and -n take a number from 0", "events", "--since", "-2")
	h.refused(exitMisuse, "the last one of this instance is", "events", "--since", "99999999")
}
