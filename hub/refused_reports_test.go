package hub_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// toNobody seals n answers to commands that never were.
func toNobody(t *testing.T, a *meshtest.Attacker, n int) (envelopes [][]byte) {
	t.Helper()
	re := &signing.Ref{ID: meshtest.NewID(), SHA256: strings.Repeat("ab", 32), Attempt: 1, Fence: 1}
	for i := range n {
		if i%2 == 0 {
			re = &signing.Ref{ID: meshtest.NewID(), SHA256: re.SHA256, Attempt: 1, Fence: 1}
		}
		envelopes = append(envelopes, a.Seal(t, &commands.Accepted{Task: meshtest.NewID(), State: commands.Queued}, re, nil).Envelope)
	}
	return envelopes
}

// What a spoke signs and is refused for all the same costs a bounded number of rows
// in the audit, none of its bytes beyond those, and the connection.
func TestRefusedReportsSuspendTheirSender(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "thief")
	a.Order(t, m)
	known, end := m.Hub.Count(t, `SELECT count(*) FROM inbox`), m.Hub.AuditEnd(t)

	a.Shout(t, commands.QueueEvents, toNobody(t, a, 600)...)

	meshtest.Await(t, "the suspension", func() bool { return m.View(t, "thief").State == store.Suspended })
	require.Contains(t, m.View(t, "thief").Reason, "RE_UNKNOWN: an answer to a command that this hub did not give over this connection")
	meshtest.Await(t, "what waited", func() bool { return m.Hub.Count(t, `SELECT count(*) FROM inbox`) == known+600 })
	require.Equal(t, 600, m.Hub.Count(t, `SELECT count(*) FROM inbox WHERE code = 'RE_UNKNOWN'`))
	told := 0
	for _, line := range m.Hub.Audit(t, end) {
		if line.Action == "report.refused" {
			told++
		}
	}
	require.GreaterOrEqual(t, told, 20)
	require.LessOrEqual(t, told, 40, "20 a minute")
	require.Equal(t, told, m.Hub.Count(t, `SELECT count(*) FROM inbox WHERE code = 'RE_UNKNOWN' AND envelope <> ''`), "the bytes of those are evidence")
}

// A hub that was restored may have lost orders for good: a spoke that answers them
// is honest.
func TestAnswersToWhatARestoredHubHasLost(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "attic")
	asked := a.Order(t, m)
	m.Hub.Exec(t, `UPDATE sequences SET base = 1`)

	a.Send(t, commands.QueueEvents, toNobody(t, a, 200)...)
	accept(t, m, a, asked)

	require.Equal(t, 200, m.Hub.Count(t, `SELECT count(*) FROM inbox WHERE code = 'RE_UNKNOWN'`))
	require.Equal(t, store.Active, m.View(t, "attic").State)
}

// A message that would leave more gaps between the stored numbers than there may be
// is not stored. It is taken when it comes behind what is missing.
func TestNumbersWithManyGaps(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "thief")
	about, marker := a.Order(t, m), a.Order(t, m)
	const first = 1000
	at := func(seq int64, q meshtest.Asked) []byte {
		return a.Seal(t, &commands.Accepted{Task: q.Task, State: commands.Queued}, q.Re, func(h *signing.Header) { h.Seq = seq }).Envelope
	}
	var envelopes [][]byte
	for i := range int64(commands.MaxMissing + 200) {
		envelopes = append(envelopes, at(first+2*i, about))
	}
	last := envelopes[len(envelopes)-1]

	a.Send(t, commands.QueueEvents, envelopes...)
	a.Send(t, commands.QueueEvents, at(first+1, marker))
	meshtest.Await(t, "the marker", func() bool { return m.Agent(t, marker.Task).AcceptedAt != nil })

	ranges := func() int {
		return m.Hub.Count(t, `SELECT count(*) FROM sequences, unnest(stored) WHERE conn = $1`, a.Conn)
	}
	require.Equal(t, commands.MaxMissing-1, ranges(), "the marker has closed one gap")
	require.Equal(t, store.Active, m.View(t, "thief").State)
	require.Positive(t, m.Hub.Count(t, `SELECT count(*) FROM audit WHERE code = 'RATE'`))
	stored := m.Hub.Count(t, `SELECT count(*) FROM inbox`)

	a.Send(t, commands.QueueEvents, at(first+3, about), at(first+5, about), last)

	meshtest.Await(t, "what was refused", func() bool { return m.Hub.Count(t, `SELECT count(*) FROM inbox`) == stored+3 })
}
