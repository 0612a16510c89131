package hub_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

func TestMain(m *testing.M) { meshtest.Main(m) }

// accept says the good words about a task and waits until the hub has them: the
// link works and what was sent before has been handled.
func accept(t *testing.T, m *meshtest.Mesh, a *meshtest.Attacker, asked meshtest.Asked) {
	t.Helper()
	a.Send(t, commands.QueueEvents, a.Seal(t, &commands.Accepted{Task: asked.Task, State: commands.Queued}, asked.Re, nil).Envelope)
	meshtest.Await(t, "the good message", func() bool { return m.Agent(t, asked.Task).AcceptedAt != nil })
}

// few is how many messages that are not authentic one connection may send
// before it is suspended, and one less.
const few = 19

// What a spoke, or whoever has its link, gets wrong is refused with one code
// and one line in the audit, and nothing else changes.
func TestBadReports(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	var sent int
	for n := 0; ; n++ {
		a := m.Attack(t, fmt.Sprintf("thief-%d", n))
		about := a.Order(t, m)
		list := a.Bad(t, func() (commands.Body, *signing.Ref) {
			return &commands.Accepted{Task: meshtest.NewID(), State: commands.Queued}, about.Re
		})
		list = append(list,
			meshtest.Bad{Name: "a byte too long", Code: signing.EnvSize, Envelope: bytes.Repeat([]byte("x"), signing.MaxMessage+1)},
			meshtest.Bad{Name: "300 KiB of spaces", Code: signing.EnvSize, Envelope: bytes.Repeat([]byte(" "), 300<<10)})
		if sent == len(list) {
			return
		}
		chunk := list[sent:min(sent+few, len(list))]
		sent += len(chunk)
		for _, bad := range chunk {
			t.Run(bad.Name, func(t *testing.T) { refused(t, m, a, bad) })
		}
	}
}

// refused sends a bad report and then a good one.
func refused(t *testing.T, m *meshtest.Mesh, a *meshtest.Attacker, bad meshtest.Bad, but ...string) {
	t.Helper()
	asked := a.Order(t, m)
	if bad.Signed { // it is kept, and its sender may forget it
		but = append(but, "inbox", "sequences")
	}
	before, end := m.Hub.Sums(t, but...), m.Hub.AuditEnd(t)

	a.Send(t, commands.QueueEvents, bad.Envelope)
	meshtest.Await(t, "a line in the audit", func() bool { return len(m.Hub.Audit(t, end)) > 0 })

	require.Equal(t, before, m.Hub.Sums(t, but...))
	accept(t, m, a, asked)
	lines := m.Hub.Audit(t, end)
	require.Len(t, lines, 1)
	require.Equal(t, string(bad.Code), lines[0].Code, lines[0].Why)
	require.Equal(t, string(a.Keys.InstanceID()), lines[0].Actor)
	require.Equal(t, bad.Signed, lines[0].Message != "", "only what is signed has a name")
}

// What is well signed can still be nonsense that a hub must not choke on: one
// spoke would hold up the reports of all.
func TestReportsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "thief")
	other := m.Attack(t, "victim")
	theirs := other.Order(t, m)
	result := func(task string) *commands.Result {
		return &commands.Result{Task: task, State: commands.Completed, Attempt: 1, Outcome: commands.Succeeded}
	}
	tests := map[string]struct {
		code signing.Code
		body func(asked meshtest.Asked) (commands.Body, *signing.Ref)
	}{
		"an answer to a command that was never given": {commands.ReUnknown, func(q meshtest.Asked) (commands.Body, *signing.Ref) {
			return result(q.Task), &signing.Ref{ID: meshtest.NewID(), SHA256: q.Re.SHA256}
		}},
		"an answer to another version of the command": {commands.ReUnknown, func(q meshtest.Asked) (commands.Body, *signing.Ref) {
			return result(q.Task), &signing.Ref{ID: q.Re.ID, SHA256: theirs.Re.SHA256}
		}},
		"an answer to another spoke's command": {commands.ReUnknown, func(meshtest.Asked) (commands.Body, *signing.Ref) {
			return result(theirs.Task), theirs.Re
		}},
		"an answer about another spoke's task": {commands.ReUnknown, func(q meshtest.Asked) (commands.Body, *signing.Ref) {
			return result(theirs.Task), q.Re
		}},
		"an attempt that no number holds": {commands.Validation, func(q meshtest.Asked) (commands.Body, *signing.Ref) {
			return &commands.Started{Task: q.Task, Attempt: 1 << 40}, q.Re
		}},
		"a state that does not exist": {commands.Validation, func(q meshtest.Asked) (commands.Body, *signing.Ref) {
			return &commands.Accepted{Task: q.Task, State: "dancing"}, q.Re
		}},
		"a refusal with a code that is a text": {commands.Validation, func(q meshtest.Asked) (commands.Body, *signing.Ref) {
			return &commands.RefusedBody{Task: q.Task, Code: "it did not feel like it", Why: "x"}, q.Re
		}},
		"a command": {signing.HdrField, func(q meshtest.Asked) (commands.Body, *signing.Ref) {
			return &commands.Spawn{Task: meshtest.NewID(), Runtime: commands.RuntimeNoop}, nil
		}},
		"a kill": {signing.HdrField, func(q meshtest.Asked) (commands.Body, *signing.Ref) {
			return &commands.Kill{Task: theirs.Task, Reason: "x"}, nil
		}},
		"a heartbeat among the reports": {signing.HdrField, func(q meshtest.Asked) (commands.Body, *signing.Ref) {
			return &commands.Heartbeat{IntervalMS: 1000, Connection: commands.ConnectionView{State: "active"}}, nil
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			asked := a.Order(t, m)
			body, re := tt.body(asked)

			refused(t, m, a, meshtest.Bad{Code: tt.code, Signed: true, Envelope: a.Seal(t, body, re, nil).Envelope})

			require.Equal(t, commands.Queued, m.Agent(t, asked.Task).State)
			require.Equal(t, commands.Queued, m.Agent(t, theirs.Task).State)
		})
	}
}

// Output that is not of the sender's own tasks, or does not go on where the stored
// output ends, has no effect and is refused with a code; what comes again is one
// piece.
func TestPiecesOfOutput(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a, b := m.Attack(t, "thief"), m.Attack(t, "victim")
	own, theirs, last := a.Order(t, m), b.Order(t, m), a.Order(t, m)
	nobodys := meshtest.NewID()
	piece := func(task string, re *signing.Ref, at int64, text string, end bool) []byte {
		l := &commands.Log{Task: task, Attempt: 1, Stream: "stdout", Offset: at, Data: []byte(text)}
		if end {
			l.End = &commands.LogEnd{}
		}
		return a.Seal(t, l, re, nil).Envelope
	}
	tests := []struct {
		name     string
		envelope []byte
		want     commands.StoredStream // the answer
	}{
		{"the first one", piece(own.Task, own.Re, 0, "one", false), stored(own.Task, 3, false, "")},
		{"the same again", piece(own.Task, own.Re, 0, "one", false), stored(own.Task, 3, false, "")},
		{"other bytes in its place", piece(own.Task, own.Re, 0, "two", false), stored(own.Task, 3, false, "")},
		{"a question", piece(own.Task, own.Re, 3, "", false), stored(own.Task, 3, false, "")},
		{"an overlap", piece(own.Task, own.Re, 1, "nex", false), stored(own.Task, 3, false, commands.Offset)},
		{"a gap", piece(own.Task, own.Re, 4, "x", false), stored(own.Task, 3, false, commands.Offset)},
		{"an end behind a gap", piece(own.Task, own.Re, 9, "", true), stored(own.Task, 3, false, commands.Offset)},
		{"the last one", piece(own.Task, own.Re, 3, "three", true), stored(own.Task, 8, true, "")},
		{"the last one again", piece(own.Task, own.Re, 3, "three", true), stored(own.Task, 8, true, "")},
		{"one behind the end", piece(own.Task, own.Re, 8, "x", false), stored(own.Task, 8, true, commands.Offset)},
		{"another connection's task", piece(theirs.Task, theirs.Re, 0, "forged", false), stored(theirs.Task, 0, false, commands.UnknownTask)},
		{"another connection's task under an own order", piece(theirs.Task, own.Re, 0, "forged", true), stored(theirs.Task, 0, false, commands.UnknownTask)},
		{"a task of nobody", piece(nobodys, own.Re, 0, "nowhere", false), stored(nobodys, 0, false, commands.UnknownTask)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			heard := len(a.Heard(commands.OutputStoredKind))

			a.Send(t, commands.QueueLogs, tt.envelope)

			meshtest.Await(t, "the answer", func() bool { return len(a.Heard(commands.OutputStoredKind)) > heard })
			require.Equal(t, []commands.StoredStream{tt.want}, a.Heard(commands.OutputStoredKind)[heard].(*commands.OutputStored).Streams)
		})
	}
	accept(t, m, a, last)
	require.Equal(t, "onethree", m.Stdout(t, own.Task, false))
	require.Empty(t, m.Logs(t, theirs.Task, false))
}

func stored(task string, through int64, ended bool, code commands.Code) commands.StoredStream {
	return commands.StoredStream{Task: task, Attempt: 1, Stream: "stdout", Through: through, Ended: ended, Code: code}
}

// Output is not stored as other messages are, and still is of the workspace that
// the connection's grant names.
func TestOutputOfAnotherWorkspace(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "thief")
	own, again := a.Order(t, m), a.Order(t, m)
	piece := func(text string, change func(*signing.Header)) []byte {
		return a.Seal(t, &commands.Log{Task: own.Task, Attempt: 1, Stream: "stdout", Data: []byte(text)}, own.Re, change).Envelope
	}
	end := m.Hub.AuditEnd(t)

	a.Send(t, commands.QueueLogs, piece("forged", func(h *signing.Header) { h.Wsp = "night" }), piece("own", nil))
	accept(t, m, a, again)

	meshtest.Await(t, "the output", func() bool { return m.Stdout(t, own.Task, false) == "own" })
	lines := m.Hub.Audit(t, end)
	require.Len(t, lines, 1)
	require.Equal(t, "the grant of this connection does not allow workspace night", lines[0].Why)
}

// One peer's honest message is worth nothing on another peer's link.
func TestAPeersMessageOnAnothersLink(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a, b := m.Attack(t, "thief"), m.Attack(t, "victim")
	asked := b.Order(t, m)
	honest := b.Seal(t, &commands.Accepted{Task: asked.Task, State: commands.Queued}, asked.Re, nil)

	refused(t, m, a, meshtest.Bad{Code: signing.KeyUnknown, Envelope: honest.Envelope})

	require.Nil(t, m.Agent(t, asked.Task).AcceptedAt)
	accept(t, m, b, asked)
}

func TestRepeatedReports(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "thief")

	t.Run("the same again changes nothing", func(t *testing.T) {
		asked := a.Order(t, m)
		envelope := a.Seal(t, &commands.Accepted{Task: asked.Task, State: commands.Queued}, asked.Re, nil).Envelope
		a.Send(t, commands.QueueEvents, envelope)
		meshtest.Await(t, "the message", func() bool { return m.Agent(t, asked.Task).AcceptedAt != nil })
		before, end, next := m.Agent(t, asked.Task), m.Hub.AuditEnd(t), a.Order(t, m)
		known := m.Hub.Count(t, `SELECT count(*) FROM inbox`)

		a.Send(t, commands.QueueEvents, envelope, envelope)
		a.Send(t, commands.QueueResults, envelope)
		accept(t, m, a, next)

		require.Equal(t, before, m.Agent(t, asked.Task))
		require.Equal(t, known+1, m.Hub.Count(t, `SELECT count(*) FROM inbox`))
		require.Empty(t, m.Hub.Audit(t, end))
	})
	t.Run("the same id with other content", func(t *testing.T) {
		asked := a.Order(t, m)
		id := meshtest.NewID()
		same := func(h *signing.Header) { h.ID = id }
		a.Send(t, commands.QueueEvents, a.Seal(t, &commands.Accepted{Task: asked.Task, State: commands.Queued}, asked.Re, same).Envelope)
		meshtest.Await(t, "the message", func() bool { return m.Agent(t, asked.Task).AcceptedAt != nil })

		refused(t, m, a, meshtest.Bad{Code: signing.ReplayDiff, Signed: true,
			Envelope: a.Seal(t, &commands.Result{Task: asked.Task, State: commands.Failed, Attempt: 1}, asked.Re, same).Envelope})

		require.Equal(t, commands.Queued, m.Agent(t, asked.Task).State)
	})
	t.Run("a second, different result", func(t *testing.T) {
		asked := a.Order(t, m)
		result := func(s commands.State) []byte {
			return a.Seal(t, &commands.Result{Task: asked.Task, State: s, Attempt: 1, Outcome: commands.Succeeded}, asked.Re, nil).Envelope
		}
		a.Send(t, commands.QueueResults, result(commands.Completed))
		m.Wait(t, asked.Task)

		before := m.Agent(t, asked.Task)

		refused(t, m, a, meshtest.Bad{Code: commands.ResultClash, Signed: true, Envelope: result(commands.Failed)}, "mirrors")

		after := m.Agent(t, asked.Task)
		after.UpdatedAt = before.UpdatedAt
		require.Equal(t, before, after)
		require.Equal(t, 2, m.Hub.Count(t, `SELECT count(*) FROM inbox WHERE task = $1 AND kind = 'agent.result'`, asked.Task), "the second one is evidence")
	})
	t.Run("sequence numbers that jump and go back", func(t *testing.T) {
		end := m.Hub.AuditEnd(t)
		for _, seq := range []int64{1_000_000, 500_000, 1 << 52} {
			asked := a.Order(t, m)
			a.Send(t, commands.QueueEvents, a.Seal(t, &commands.Accepted{Task: asked.Task, State: commands.Queued}, asked.Re,
				func(h *signing.Header) { h.Seq = seq }).Envelope)
			meshtest.Await(t, "the message", func() bool { return m.Agent(t, asked.Task).AcceptedAt != nil })
		}
		require.Empty(t, m.Hub.Audit(t, end))
	})
	t.Run("a sequence number twice has no effect, and stops what goes out until it is settled", func(t *testing.T) {
		asked, more := a.Order(t, m), a.Order(t, m)
		seven := func(h *signing.Header) { h.Seq = 777_777 }
		a.Send(t, commands.QueueEvents, a.Seal(t, &commands.Accepted{Task: asked.Task, State: commands.Queued}, asked.Re, seven).Envelope)
		meshtest.Await(t, "the message", func() bool { return m.Agent(t, asked.Task).AcceptedAt != nil })
		agree := func() {
			a.Beat(t, a.Seal(t, &commands.Heartbeat{IntervalMS: 3_600_000, KillLevel: "group", Version: "x",
				Connection: commands.ConnectionView{State: "active", Agrees: true, Numbers: &commands.Numbering{Sent: 1 << 52}}}, nil, nil).Envelope)
		}
		end := m.Hub.AuditEnd(t)

		for range 5 {
			a.Send(t, commands.QueueEvents, a.Seal(t, &commands.Accepted{Task: more.Task, State: commands.Queued}, more.Re, seven).Envelope)
			meshtest.Await(t, "the comparison", func() bool {
				return m.View(t, "thief").Differs == "the peer used number 777777 twice; it is asked to compare"
			})
			agree() // it has not heard of the reuse yet
			require.NotEmpty(t, m.View(t, "thief").Differs)
			agree()
			require.Empty(t, m.View(t, "thief").Differs)
		}
		require.Nil(t, m.Agent(t, more.Task).AcceptedAt)
		require.Equal(t, store.Active, m.View(t, "thief").State)
		for _, line := range m.Hub.Audit(t, end) {
			require.Contains(t, []string{string(signing.SeqReuse), string(commands.Resync)}, line.Code)
		}

		a.Shout(t, commands.QueueEvents, a.Seal(t, &commands.Accepted{Task: more.Task, State: commands.Queued}, more.Re, seven).Envelope)

		meshtest.Await(t, "the suspension", func() bool { return m.View(t, "thief").State == store.Suspended })
		require.Contains(t, m.View(t, "thief").Reason, "does another instance run with the key of thief?")
		settled := make(chan error, 1)
		go func() { settled <- m.Hub.Ask(t, "POST", "/api/v1/connections/thief/resync", nil, nil) }()
		meshtest.Await(t, "the settlement on a new link", func() bool {
			if a.Link.State().Up {
				agree() // the hub answers none before it serves the connection again
			}
			select {
			case err := <-settled:
				require.NoError(t, err)
				return true
			default:
				return false
			}
		})
		require.Equal(t, store.Active, m.View(t, "thief").State)
		for range 5 { // they are counted anew
			a.Send(t, commands.QueueEvents, a.Seal(t, &commands.Accepted{Task: more.Task, State: commands.Queued}, more.Re, seven).Envelope)
			meshtest.Await(t, "the comparison", func() bool { return m.View(t, "thief").Differs != "" })
			agree()
			agree()
		}
		require.Equal(t, store.Active, m.View(t, "thief").State)
	})
}

// A hub that was restored without noticing it is told so by a spoke that has
// something else under a number. It gives its open messages other numbers.
func TestASpokeHasSomethingElseUnderANumber(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "attic")
	kept, unlike := a.Order(t, m), a.Order(t, m)
	reuse := func(held ...commands.Held) {
		a.Beat(t, a.Seal(t, &commands.Heartbeat{IntervalMS: 3_600_000, KillLevel: "group", Version: "x", Connection: commands.ConnectionView{State: "active",
			Numbers: &commands.Numbering{Stored: commands.Numbers{Through: 2}, Held: held,
				Digest: &commands.History{From: 1, Until: time.Now().UnixMilli(), SHA256: strings.Repeat("ab", 32)}}}}, nil, nil).Envelope)
	}

	reuse()
	reuse(commands.Held{Seq: 1, SHA256: kept.Digest}, commands.Held{Seq: 2, SHA256: strings.Repeat("cd", 32)})

	base := m.Hub.Count(t, `SELECT base FROM sequences`)
	require.Positive(t, base)
	require.Equal(t, 1, m.Hub.Count(t, `SELECT count(*) FROM outbox WHERE task = $1 AND seq = 1 AND id NOT IN (SELECT id FROM open_outbox)`, kept.Task))
	require.Equal(t, 1, m.Hub.Count(t, `SELECT count(*) FROM open_outbox WHERE task = $1 AND seq = $2 AND id = $3`, unlike.Task, base+1, unlike.Re.ID))
	require.Equal(t, store.Active, m.View(t, "attic").State)
}

// Too many messages that are not authentic suspend the one who sends them, and
// nobody else notices.
func TestGarbageSuspendsItsSender(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	a := m.Attack(t, "thief")

	a.Shout(t, commands.QueueEvents, slices.Repeat([][]byte{[]byte("garbage")}, 25)...)

	meshtest.Await(t, "the suspension", func() bool { return m.View(t, "thief").State == store.Suspended })
	meshtest.Await(t, "the end of the link", func() bool { return !a.Link.State().Up })
	m.Wait(t, m.Noop(t, "attic"))
	require.True(t, m.View(t, "attic").Linked)
}
