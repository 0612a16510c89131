package hub_test

import (
	"fmt"
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
	require.Zero(t, m.Hub.Count(t, `SELECT count(*) FROM inbox WHERE code = 'RE_UNKNOWN' AND envelope <> ''`), "of what is refused the digest is kept")
}

// A spoke that says with each heartbeat that it was restored costs a bounded number of rows
// in the audit, and the connection.
func TestAHistoryThatIsAnotherOneWithEachHeartbeat(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "thief")
	end, base := m.Hub.AuditEnd(t), int64(0)

	meshtest.Await(t, "the suspension", func() bool {
		base++
		a.Beat(t, a.Seal(t, &commands.Heartbeat{IntervalMS: 3_600_000, KillLevel: "group", Version: "x",
			Connection: commands.ConnectionView{State: "active", Numbers: &commands.Numbering{Base: base}}}, nil, nil).Envelope)
		return m.View(t, "thief").State == store.Suspended
	})

	require.Contains(t, m.View(t, "thief").Reason, "its history was another one with each heartbeat")
	told := 0
	for _, line := range m.Hub.Audit(t, end) {
		if line.Action == "connection.resync" {
			require.Equal(t, "thief", line.Object)
			told++
		}
	}
	require.GreaterOrEqual(t, told, 20)
	require.LessOrEqual(t, told, 40, "20 a minute")
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

// A spoke that was restored may end what has ended otherwise, and say so again: nobody suspends it for that, and it is proof of nothing. What it has told since it
// may not contradict.
func TestAnotherEndOfBeforeARestoreIsNoFault(t *testing.T) {
	t.Parallel()
	const base, orders = 1000, 40
	m := meshtest.Start(t)
	a := m.Attack(t, "attic")
	end := func(q meshtest.Asked, code int, seq int64) []byte {
		return a.Seal(t, &commands.Result{Task: q.Task, State: commands.Completed, Attempt: 1, Outcome: commands.Succeeded, Exit: commands.Exit{Code: code}}, q.Re, func(h *signing.Header) { h.Seq = max(h.Seq, seq) }).Envelope
	}
	conflicts := func(kept bool) int {
		return m.Hub.Count(t, `SELECT count(*) FROM inbox WHERE code = 'RESULT_CONFLICT' AND (envelope <> '') = $1`, kept)
	}
	// ended orders tasks that end with message from on, and returns other ends of them, each twice.
	ended := func(from, other int64) (others, again [][]byte) {
		for i := range int64(orders) {
			asked := a.Order(t, m)
			a.Send(t, commands.QueueResults, end(asked, 0, from+i))
			require.Equal(t, commands.Completed, m.Wait(t, asked.Task).State)
			others, again = append(others, end(asked, 1, other+i)), append(again, end(asked, 1, other+orders+i))
		}
		return others, again
	}
	others, again := ended(1, base+1)
	own, _ := ended(2*orders, base/2)
	m.Hub.Exec(t, `UPDATE sequences SET peer_base = $1`, base)

	a.Send(t, commands.QueueResults, own[0])
	meshtest.Await(t, "the first refusal", func() bool { return conflicts(true)+conflicts(false) == 1 })
	require.Equal(t, 1, conflicts(true), "both ends of that agent were told before the restore")
	a.Send(t, commands.QueueResults, others...)

	meshtest.Await(t, "the refusals", func() bool { return conflicts(false) == orders })
	a.Send(t, commands.QueueResults, again...)
	meshtest.Await(t, "the refusals of what is said again", func() bool { return conflicts(false)+conflicts(true) == 2*orders+1 })
	require.Equal(t, 1, conflicts(true), "an end that was refused is none that was told")
	require.Equal(t, store.Active, m.View(t, "attic").State)
	since, _ := ended(2*base, 3*base)
	a.Shout(t, commands.QueueResults, since...)
	meshtest.Await(t, "the suspension", func() bool { return m.View(t, "attic").State == store.Suspended })
}

// A message that would leave more gaps between the stored numbers than there may be
// is not stored. It is taken when it comes behind what is missing.
func TestNumbersWithManyGaps(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "thief")
	about, more, marker := a.Order(t, m), a.Order(t, m), a.Order(t, m)
	const first = 1000
	at := func(seq int64, q meshtest.Asked) []byte {
		return a.Seal(t, &commands.Accepted{Task: q.Task, State: commands.Queued}, q.Re, func(h *signing.Header) { h.Seq = seq }).Envelope
	}
	var envelopes [][]byte
	for i := range int64(commands.MaxMissing + 200) {
		envelopes = append(envelopes, at(first+2*i, []meshtest.Asked{about, more}[i%2]))
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

// What a spoke says again and again about an order that it has, each time in a new
// message, costs a bounded number of rows, and then the connection.
func TestReportsWithoutEnd(t *testing.T) {
	t.Parallel()
	refuse := func(q meshtest.Asked, i int) commands.Body {
		return &commands.RefusedBody{Task: q.Task, Code: commands.Policy, Why: fmt.Sprint("no, for the time ", i)}
	}
	tests := map[string]struct {
		before  func(*testing.T, *meshtest.Mesh, *meshtest.Attacker, meshtest.Asked) // brings the order to its end
		say     func(q meshtest.Asked, i int) commands.Body
		n, acts int // messages, and how many of them are taken
		code    signing.Code
		late    int // rows of the audit that say that a report came late
	}{
		"that it waits and runs by turns": {
			say: func(q meshtest.Asked, i int) commands.Body {
				if i%2 == 0 {
					return &commands.Accepted{Task: q.Task, State: commands.Queued}
				}
				return &commands.Started{Task: q.Task, Attempt: 1, At: 1}
			},
			n: 2100, acts: 2000, code: commands.TooMany,
		},
		"that it refuses it": {
			say: refuse,
			n:   60, acts: 1, code: commands.ResultClash,
		},
		"that it refuses it, in the same words": {
			say: func(q meshtest.Asked, _ int) commands.Body { return refuse(q, 0) },
			n:   2100, acts: 2000, code: commands.TooMany,
		},
		"its end, after the hub had given it up": {
			before: func(t *testing.T, m *meshtest.Mesh, _ *meshtest.Attacker, q meshtest.Asked) {
				m.Hub.Exec(t, `UPDATE mirrors SET state = 'unavailable', reason = 'command_expired', ended_at = clock_timestamp() WHERE task = $1`, q.Task)
			},
			say: func(q meshtest.Asked, i int) commands.Body {
				return &commands.Result{Task: q.Task, State: commands.Completed, Attempt: 1, Outcome: commands.Succeeded, Exit: commands.Exit{Code: i}}
			},
			n: 60, acts: 1, code: commands.ResultClash, late: 1,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := meshtest.Start(t)
			a := m.Attack(t, "thief")
			asked := a.Order(t, m)
			if tt.before != nil {
				tt.before(t, m, a, asked)
			}
			var envelopes [][]byte
			for i := range tt.n {
				envelopes = append(envelopes, a.Seal(t, tt.say(asked, i), asked.Re, nil).Envelope)
			}
			end := m.Hub.AuditEnd(t)

			a.Send(t, commands.QueueEvents, envelopes[0])
			meshtest.Await(t, "the first one", func() bool { return m.Hub.Count(t, `SELECT count(*) FROM inbox WHERE task = $1`, asked.Task) == 1 })
			a.Shout(t, commands.QueueEvents, envelopes[1:]...)

			meshtest.Await(t, "the suspension", func() bool { return m.View(t, "thief").State == store.Suspended })
			require.Contains(t, m.View(t, "thief").Reason, string(tt.code))
			meshtest.Await(t, "what waited", func() bool {
				return m.Hub.Count(t, `SELECT count(*) FROM inbox WHERE task = $1`, asked.Task) == tt.n
			})
			require.LessOrEqual(t, m.Hub.Count(t, `SELECT count(*) FROM inbox WHERE task = $1 AND code = ''`, asked.Task), tt.acts)
			rows := func(action string) int {
				return m.Hub.Count(t, `SELECT count(*) FROM audit WHERE seq > $1 AND action = $2`, end, action)
			}
			require.Equal(t, tt.late, rows("mirror.late"))
			require.LessOrEqual(t, rows("report.refused"), 40, "20 a minute")
			require.LessOrEqual(t, m.Hub.Count(t, `SELECT count(*) FROM inbox WHERE task = $1 AND envelope <> ''`, asked.Task), tt.acts+40)
		})
	}
}

// A report that is stored and refused is answered as that: its sender is not left to believe
// that it had an effect.
func TestARefusedReportIsAnsweredAsRefused(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "thief")
	a.Order(t, m)

	a.Send(t, commands.QueueEvents, toNobody(t, a, 1)...)

	var told []commands.RefusedReport
	meshtest.Await(t, "the confirmation", func() bool {
		for _, b := range a.Heard(commands.ReceivedKind) {
			told = b.(*commands.Received).Refused
		}
		return len(told) > 0
	})
	require.Equal(t, []commands.RefusedReport{{Seq: a.Seq.Load(), Code: commands.ReUnknown}}, told)
}
