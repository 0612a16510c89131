package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
)

// Either side may end the pause of the other one, and is told whose it was; the backlog of the host says by whom an agent is
// paused. Of an agent that waits its host is told all that keeps it, by status as by why.
func TestBothSidesPause(t *testing.T) {
	t.Parallel()
	m := startMesh(t, "--slots", "1")
	h, s := hand{t: t, dir: m.Hub.Dir}, hand{t: t, dir: m.Spokes["attic"].Dir}
	g := newGate(t)
	id := h.spawn("--spoke", "attic", "--", "sh", "-c", g.wait())
	h.runs(id)
	short := commands.ShortID(id)
	stands := func(want commands.State) {
		h.until(id, func(v hub.AgentView) bool { return v.State == want })
	}

	s.do("pause", id, "--reason", "lunch")
	stands(commands.Paused)
	require.Regexp(t, `(?m)^ +it is paused by uid:\d+ until somebody resumes it: lunch \(since `, s.do("backlog", "why", short))
	require.Contains(t, h.run("", "resume", id).err, "note: agent "+short+" had been paused by its host, or by this hub before it was restored")
	stands(commands.Running)
	h.do("pause", id, "--reason", "the disk")
	stands(commands.Paused)
	require.Regexp(t, `(?m)^ +it is paused by lab until somebody resumes it: the disk \(since `, s.do("backlog", "why", short))
	require.Equal(t, "note: agent "+short+" had been paused by its hub lab: the disk; the newest word counts, so it goes on\n", s.run("", "resume", id).err)
	stands(commands.Running)
	h.do("pause", id)
	stands(commands.Paused)
	require.Empty(t, h.run("", "resume", id).err, "it was its own")
	stands(commands.Running)
	h.do("pause", id, "--reason", "of before")
	stands(commands.Paused)
	s.do("resume", id)
	stands(commands.Running)
	s.do("pause", id, "--reason", "mine")
	stands(commands.Paused)
	why := h.do("why", id)
	require.Contains(t, why, "no pause of this hub is in force")
	require.NotContains(t, why, "of before")
	require.Contains(t, h.run("", "resume", id).err, "note: agent "+short+" had been paused by its host")
	stands(commands.Running)

	waits := h.spawn("--spoke", "attic", "--", "true")
	h.until(waits, func(v hub.AgentView) bool { return v.AcceptedAt != nil })
	why = s.do("why", waits)
	require.Contains(t, why, "no slot is free, of 1")
	require.Equal(t, "\n"+why, s.run("", "status", waits).err)
	g.open(t)
	h.ends(waits)
}
