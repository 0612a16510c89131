package transport

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSubjectsParseBack(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"a", "attic", "0-9", "a-b-c", strings.Repeat("x", 63)} {
		for _, lane := range lanes {
			peer, gotLane, verb, ok := parseCommand(commandSubject(id, lane, "spawn"))
			require.True(t, ok)
			require.Equal(t, []string{id, lane, "spawn"}, []string{peer, gotLane, verb})
		}
		for _, kind := range kinds {
			peer, gotKind, ok := parseReport(reportSubject(id, kind))
			require.True(t, ok)
			require.Equal(t, []string{id, kind}, []string{peer, gotKind})
		}
		peer, ok := parseBeat(beatSubject(id))
		require.True(t, ok)
		require.Equal(t, id, peer)
	}
	const session = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for _, step := range steps {
		gotSession, gotStep, ok := parseJoin(joinSubject(session, step))
		require.True(t, ok)
		require.Equal(t, []string{session, step}, []string{gotSession, gotStep})
	}
	got, ok := joinSession(joinUser(session))
	require.True(t, ok)
	require.Equal(t, session, got)
}

func TestSubjectsOfNobodyAreRefused(t *testing.T) {
	t.Parallel()
	bad := map[string]string{
		"empty":               "",
		"an upper-case peer":  "mesh.cmd.Attic.run.spawn mesh.rpt.Attic.evt mesh.hb.Attic",
		"a wildcard peer":     "mesh.cmd.*.run.spawn mesh.rpt.*.evt mesh.hb.* mesh.hb.>",
		"the probe":           "mesh.cmd._probe.ctl.probe mesh.rpt._probe.evt mesh.hb._probe",
		"a peer too long":     "mesh.hb." + strings.Repeat("x", 64),
		"a token too many":    "mesh.cmd.attic.run.spawn.x mesh.rpt.attic.evt.x mesh.hb.attic.x",
		"a token too few":     "mesh.cmd.attic.run mesh.rpt.attic mesh.hb.",
		"an unknown lane":     "mesh.cmd.attic.fast.spawn",
		"an unknown kind":     "mesh.rpt.attic.cmd",
		"another tree":        "nest.cmd.attic.run.spawn nest.rpt.attic.evt nest.hb.attic",
		"a dash in front":     "mesh.hb.-attic",
		"a short session":     "mesh.join.ABC.hello",
		"an unknown step":     "mesh.join.ABCDEFGHIJKLMNOP.accept",
		"a session with dots": "mesh.join.ABCDEFGH.IJKLMNOP.hello",
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
		if peer, lane, verb, ok := parseCommand(s); ok {
			require.Equal(t, s, commandSubject(peer, lane, verb))
		}
		if peer, kind, ok := parseReport(s); ok {
			require.Equal(t, s, reportSubject(peer, kind))
		}
		if peer, ok := parseBeat(s); ok {
			require.Equal(t, s, beatSubject(peer))
		}
		if session, step, ok := parseJoin(s); ok {
			require.Equal(t, s, joinSubject(session, step))
		}
	})
}

func TestAPeerSeesTenSubjectsAndAllAreItsOwn(t *testing.T) {
	t.Parallel()

	ds := doors("attic")

	require.Len(t, ds, 10)
	for _, d := range ds {
		require.Regexp(t, `(^|\.)attic(_run|_ctl)?(\.|$)`, d.outside)
		require.Regexp(t, `(^|\.)attic(_run|_ctl)?(\.|$)`, d.inside)
	}
}
