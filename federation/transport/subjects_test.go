package transport

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSubjectsParseBack(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"a", "attic", "0-9", "a-b-c", strings.Repeat("x", 63)} {
		for _, queue := range commandQueues {
			conn, gotLane, verb, ok := parseCommand(commandSubject(id, queue, "spawn"))
			require.True(t, ok)
			require.Equal(t, []string{id, queue, "spawn"}, []string{conn, gotLane, verb})
		}
		for _, queue := range reportQueues {
			conn, gotKind, ok := parseReport(reportSubject(id, queue))
			require.True(t, ok)
			require.Equal(t, []string{id, queue}, []string{conn, gotKind})
		}
		conn, ok := parseBeat(beatSubject(id))
		require.True(t, ok)
		require.Equal(t, id, conn)
	}
	const joinID = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for _, step := range steps {
		gotID, gotStep, ok := parseJoin(joinSubject(joinID, step))
		require.True(t, ok)
		require.Equal(t, []string{joinID, step}, []string{gotID, gotStep})
	}
	got, ok := parseJoinUser(joinUser(joinID))
	require.True(t, ok)
	require.Equal(t, joinID, got)
}

func TestSubjectsOfNobodyAreRefused(t *testing.T) {
	t.Parallel()
	bad := map[string]string{
		"empty":              "",
		"an upper-case peer": "mesh.cmd.Attic.run.spawn mesh.rpt.Attic.evt mesh.hb.Attic",
		"a wildcard peer":    "mesh.cmd.*.run.spawn mesh.rpt.*.evt mesh.hb.* mesh.hb.>",
		"the probe":          "mesh.cmd._probe.ctl.probe mesh.rpt._probe.evt mesh.hb._probe",
		"a peer too long":    "mesh.hb." + strings.Repeat("x", 64),
		"a token too many":   "mesh.cmd.attic.run.spawn.x mesh.rpt.attic.evt.x mesh.hb.attic.x",
		"a token too few":    "mesh.cmd.attic.run mesh.rpt.attic mesh.hb.",
		"an unknown queue":   "mesh.cmd.attic.fast.spawn",
		"an unknown kind":    "mesh.rpt.attic.cmd",
		"another tree":       "nest.cmd.attic.run.spawn nest.rpt.attic.evt nest.hb.attic",
		"a dash in front":    "mesh.hb.-attic",
		"a short id":         "mesh.join.ABC.hello",
		"an unknown step":    "mesh.join.ABCDEFGHIJKLMNOP.accept",
		"an id with dots":    "mesh.join.ABCDEFGH.IJKLMNOP.hello",
	}
	for name, subjects := range bad {
		t.Run(name, func(t *testing.T) {
			for _, s := range append(strings.Fields(subjects), "") {
				_, _, _, command := parseCommand(s)
				_, _, report := parseReport(s)
				_, beat := parseBeat(s)
				_, _, join := parseJoin(s)
				require.False(t, command || report || beat || join, "%q was parsed", s)
			}
		})
	}
}

func FuzzParsedSubjectsAreTheOnesWeBuild(f *testing.F) {
	f.Add("mesh.cmd.attic.run.spawn")
	f.Add("mesh.rpt.attic.evt")
	f.Add("mesh.hb.attic")
	f.Add("mesh.join.ABCDEFGHIJKLMNOP.hello")
	f.Fuzz(func(t *testing.T, s string) {
		if conn, queue, verb, ok := parseCommand(s); ok {
			require.Equal(t, s, commandSubject(conn, queue, verb))
		}
		if conn, queue, ok := parseReport(s); ok {
			require.Equal(t, s, reportSubject(conn, queue))
		}
		if conn, ok := parseBeat(s); ok {
			require.Equal(t, s, beatSubject(conn))
		}
		if joinID, step, ok := parseJoin(s); ok {
			require.Equal(t, s, joinSubject(joinID, step))
		}
	})
}

func TestAPeerSeesTenSubjectsAndAllAreItsOwn(t *testing.T) {
	t.Parallel()

	ds := exports("attic")

	require.Len(t, ds, 10)
	for _, d := range ds {
		require.Regexp(t, `(^|\.)attic(_run|_ctl)?(\.|$)`, d.outside)
		require.Regexp(t, `(^|\.)attic(_run|_ctl)?(\.|$)`, d.inside)
	}
}
