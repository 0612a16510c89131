package spoke_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/store"
)

func TestMain(m *testing.M) { meshtest.Main(m) }

// done runs one good order to its end, so that there is something to lose.
func done(t *testing.T, r *meshtest.Rogue) (task string) {
	t.Helper()
	order, task := r.Noop(t, nil)
	r.Send(t, commands.QueueRun, order.Envelope)
	result := r.Answer(t, order.ID, commands.ResultKind).(*commands.Result)
	require.Equal(t, commands.Completed, result.State)
	return task
}

// ask sends a good question about a task and waits for its answer: the link
// works and what was sent before has been handled.
func ask(t *testing.T, r *meshtest.Rogue, task string) {
	t.Helper()
	question := r.Seal(t, &commands.Status{Task: task}, nil, nil)
	r.Send(t, commands.QueueRun, question.Envelope)
	r.Answer(t, question.ID, commands.StateKind)
}

// refused sends a bad command and then a good question. Where bad is signed it
// is kept, and its sender is told; nothing else changes.
func refused(t *testing.T, r *meshtest.Rogue, task string, bad meshtest.Bad) {
	t.Helper()
	var but []string
	if bad.Signed {
		but = []string{"inbox", "outbox", "sequences"}
	}
	before, end := r.Spoke.Sums(t, but...), r.Spoke.AuditEnd(t)

	r.Send(t, commands.QueueRun, bad.Envelope)
	meshtest.Await(t, "a line in the audit", func() bool { return len(r.Spoke.Audit(t, end)) > 0 })

	require.Equal(t, before, r.Spoke.Sums(t, but...))
	ask(t, r, task)
	lines := r.Spoke.Audit(t, end)
	require.Len(t, lines, 1)
	require.Equal(t, string(bad.Code), lines[0].Code, lines[0].Why)
	require.Equal(t, bad.Signed, lines[0].Message != "", "only what is signed has a name")
}

// What a hub, or whoever stands in its place, gets wrong is refused with one
// code and one line in the audit, and nothing else changes.
func TestBadCommands(t *testing.T) {
	t.Parallel()
	for sent := 0; ; {
		r := meshtest.Plan{}.Rogue(t)
		task := done(t, r)
		list := r.Bad(t, func() (commands.Body, *signing.Ref) {
			return &commands.Spawn{Task: meshtest.NewID(), Runtime: commands.RuntimeNoop}, nil
		})
		if sent == len(list) {
			return
		}
		chunk := list[sent:min(sent+few, len(list))]
		sent += len(chunk)
		for _, bad := range chunk {
			t.Run(bad.Name, func(t *testing.T) { refused(t, r, task, bad) })
		}
	}
}

// The grant of the connection decides in which workspace a hub may ask, at the
// moment of the effect.
func TestTheGrantNamesTheWorkspace(t *testing.T) {
	t.Parallel()
	r := meshtest.Plan{}.Rogue(t)
	done(t, r)
	night, _ := r.Noop(t, func(h *signing.Header) { h.Wsp = "night" })
	day, _ := r.Noop(t, nil)
	r.Spoke.Exec(t, `UPDATE grants SET wsp = 'night'`)

	r.Send(t, commands.QueueRun, day.Envelope, night.Envelope)

	require.Equal(t, commands.Completed, r.Answer(t, night.ID, commands.ResultKind).(*commands.Result).State)
	refusal := r.Answer(t, day.ID, commands.RefusedKind).(*commands.RefusedBody)
	require.Equal(t, commands.Grant, refusal.Code)
	require.Equal(t, "the grant of this connection does not allow workspace main", refusal.Why)
}

// few is how many messages that are not authentic one connection may send
// before it is suspended, and one less.
const few = 19

// What is well signed can still be nonsense, or more than this host allows: the
// hub is told, and the next command is carried out.
func TestCommandsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	r := meshtest.Plan{Policy: `
version: 1
runtimes: [exec, noop]
commands: [echo ...]
isolation: none
allow_root_agents: true
directories: [/usr/share]
environment: [CI]
capabilities: [go]
`}.Rogue(t)
	known := done(t, r)
	spawn := func(change func(*commands.Spawn)) commands.Body {
		s := &commands.Spawn{Task: meshtest.NewID(), Runtime: commands.RuntimeExec, Argv: []string{"echo", "hi"}}
		change(s)
		return s
	}
	nobody := meshtest.NewID()
	re := &signing.Ref{ID: meshtest.NewID(), SHA256: strings.Repeat("0", 64), Attempt: 1, Fence: 1}
	tests := map[string]struct {
		code signing.Code
		body commands.Body
	}{
		"a command that is not allowed":      {commands.Policy, spawn(func(s *commands.Spawn) { s.Argv[0] = "bash" })},
		"an allowed name under another path": {commands.Policy, spawn(func(s *commands.Spawn) { s.Argv[0] = "/tmp/echo" })},
		"a directory that is not allowed":    {commands.BadPath, spawn(func(s *commands.Spawn) { s.Dir = "/etc" })},
		"a directory that climbs":            {commands.BadPath, spawn(func(s *commands.Spawn) { s.Dir = "/usr/share/../../etc" })},
		"a variable that is not allowed":     {commands.Policy, spawn(func(s *commands.Spawn) { s.Env = []commands.EnvVar{{Name: "LD_PRELOAD"}} })},
		"a variable in two spellings":        {commands.BadEnv, spawn(func(s *commands.Spawn) { s.Env = []commands.EnvVar{{Name: "CI"}, {Name: "ci"}} })},
		"a value with a NUL":                 {commands.BadEnv, spawn(func(s *commands.Spawn) { s.Env = []commands.EnvVar{{Name: "CI", As: commands.EnvSecret}} })},
		"a capability that is not here":      {commands.Capability, spawn(func(s *commands.Spawn) { s.Capabilities = []string{"gpu"} })},
		"a runtime that does not exist":      {commands.Validation, spawn(func(s *commands.Spawn) { s.Runtime = "docker" })},
		"no command":                         {commands.Validation, spawn(func(s *commands.Spawn) { s.Argv = nil })},
		"retries without end":                {commands.Validation, spawn(func(s *commands.Spawn) { s.MaxRetries = 1 << 40 })},
		"the task of another order":          {commands.TaskConflict, spawn(func(s *commands.Spawn) { s.Task = known })},
		"a task that is no UUID":             {commands.Validation, spawn(func(s *commands.Spawn) { s.Task = "../../etc" })},
		"a NUL in an argument":               {signing.BodyJSON, spawn(func(s *commands.Spawn) { s.Argv[1] = "a\x00b" })},
		"a NUL in a directory":               {signing.BodyJSON, spawn(func(s *commands.Spawn) { s.Runtime, s.Argv, s.Dir = "noop", nil, "/usr/share/a\x00b" })},
		"a NUL in the reason of a kill":      {signing.BodyJSON, &commands.Kill{Task: known, Reason: "a\x00b"}},
		"a confirmation of nothing":          {commands.Validation, &commands.Received{Numbers: commands.Numbers{Through: -1}}},
		"a kill without a reason":            {commands.Validation, &commands.Kill{Task: known}},
		"a kill with an endless grace":       {commands.Validation, &commands.Kill{Task: known, Reason: "x", GraceMS: 1 << 50}},
		"a question about nothing":           {commands.UnknownTask, &commands.Status{Task: nobody}},
		"a heartbeat":                        {signing.HdrField, &commands.Heartbeat{IntervalMS: 1000, Connection: commands.ConnectionView{State: "active"}}},
		"a result":                           {signing.HdrField, &commands.Result{Task: known, State: commands.Failed}},
		"a receipt":                          {signing.HdrField, &commands.Accepted{Task: known, State: commands.Queued}},
		"a piece of log":                     {signing.HdrField, &commands.Log{Task: known, Attempt: 1, Stream: "stdout", Data: []byte("x")}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			about := re
			if k := tt.body.Kind(); k.Type() == signing.Command || k.Type() == signing.Peer {
				about = nil
			}
			sealed := r.Seal(t, tt.body, about, nil)
			if s, ok := tt.body.(*commands.Spawn); ok && len(s.Env) > 0 && s.Sealed == nil {
				value := "/tmp/x.so"
				if s.Env[0].As == commands.EnvSecret {
					value += "\x00"
				}
				sealed = r.Valued(t, s, slices.Repeat([]string{value}, len(s.Env))...)
			}

			refused(t, r, known, meshtest.Bad{Code: tt.code, Signed: true, Envelope: sealed.Envelope})

			if tt.body.Kind().Type() == signing.Command {
				answer := r.Answer(t, sealed.ID, commands.RefusedKind).(*commands.RefusedBody)
				require.Equal(t, tt.code, answer.Code)
				require.NotContains(t, answer.Why, "/tmp/x.so", "values of variables are nobody's business")
			}
		})
	}
}

// A shell is nowhere between a hub and an agent.
func TestArgumentsAreLiteral(t *testing.T) {
	t.Parallel()
	r := meshtest.Plan{Policy: meshtest.Loose("version: 1\nruntimes: [exec]\ncommands: [echo ...]\n")}.Rogue(t)
	text := "$(id) `id`; rm -rf / | cat && true > x * ~ $HOME \"'"
	order := r.Seal(t, &commands.Spawn{Task: meshtest.NewID(), Runtime: commands.RuntimeExec, Argv: []string{"echo", text}}, nil, nil)

	r.Send(t, commands.QueueRun, order.Envelope)

	result := r.Answer(t, order.ID, commands.ResultKind).(*commands.Result)
	require.Equal(t, text+"\n", result.Stdout.Tail)
}

// receipts counts how often the receipt of a command was heard.
func receipts(r *meshtest.Rogue, id string) (n int) {
	for _, c := range r.Heard() {
		if re := c.Opened.Header().Re; re != nil && re.ID == id && c.Body.Kind() == commands.AcceptedKind {
			n++
		}
	}
	return n
}

func TestTheSameCommandAgainGetsTheSameReceipt(t *testing.T) {
	t.Parallel()
	r := meshtest.Plan{}.Rogue(t)
	known := done(t, r)
	order, _ := r.Noop(t, nil)
	r.Send(t, commands.QueueRun, order.Envelope)
	r.Answer(t, order.ID, commands.ResultKind)
	end := r.Spoke.AuditEnd(t)
	r.Restart(t) // a message server lets a second copy through only when it has forgotten the first

	r.Send(t, commands.QueueRun, order.Envelope, order.Envelope)
	r.Send(t, commands.QueueControl, order.Envelope)

	meshtest.Await(t, "the receipt again", func() bool { return receipts(r, order.ID) > 1 })
	ask(t, r, known)
	require.Equal(t, 2, r.Spoke.Count(t, `SELECT count(*) FROM tasks`))
	require.Equal(t, 2, r.Spoke.Count(t, `SELECT count(*) FROM attempts`))
	require.Empty(t, r.Spoke.Audit(t, end))
	require.Equal(t, 1, r.Spoke.Count(t, `SELECT count(*) FROM outbox WHERE re = $1 AND kind = 'agent.accepted'`, order.ID))
}

func TestRepeatedCommands(t *testing.T) {
	t.Parallel()
	r := meshtest.Plan{}.Rogue(t)
	known := done(t, r)
	tasks := func() int { return r.Spoke.Count(t, `SELECT count(*) FROM tasks`) }
	t.Run("the same id with other content", func(t *testing.T) {
		order, _ := r.Noop(t, nil)
		r.Send(t, commands.QueueRun, order.Envelope)
		r.Answer(t, order.ID, commands.ResultKind)
		other, _ := r.Noop(t, func(h *signing.Header) { h.ID = order.ID })

		refused(t, r, known, meshtest.Bad{Code: signing.ReplayDiff, Signed: true, Envelope: other.Envelope})
	})
	t.Run("another message for the same task", func(t *testing.T) {
		order, task := r.Noop(t, nil)
		again := r.Seal(t, &commands.Spawn{Task: task, Runtime: commands.RuntimeNoop}, nil, nil)
		r.Send(t, commands.QueueRun, order.Envelope)
		r.Answer(t, order.ID, commands.ResultKind)
		n := tasks()

		r.Send(t, commands.QueueRun, again.Envelope)

		require.True(t, r.Answer(t, again.ID, commands.AcceptedKind).(*commands.Accepted).Known)
		require.Equal(t, n, tasks())
	})
	t.Run("sequence numbers that jump and go back", func(t *testing.T) {
		for _, seq := range []int64{1_000_000, 500_000, 1 << 52} {
			order, _ := r.Noop(t, func(h *signing.Header) { h.Seq = seq })
			r.Send(t, commands.QueueRun, order.Envelope)
			r.Answer(t, order.ID, commands.ResultKind)
		}
	})
	t.Run("a sequence number twice has no effect, and is no reason to stop for good", func(t *testing.T) {
		seven := func(h *signing.Header) { h.Seq = 777_777 }
		first, _ := r.Noop(t, seven)
		second, task := r.Noop(t, seven)
		r.Send(t, commands.QueueRun, first.Envelope)
		r.Answer(t, first.ID, commands.ResultKind)
		n, end := tasks(), r.Spoke.AuditEnd(t)

		r.Send(t, commands.QueueRun, second.Envelope)

		meshtest.Await(t, "the comparison", func() bool {
			var v spoke.HubView
			r.Spoke.Do(t, "GET", "/api/v1/connections/lab", nil, &v)
			return v.Differs == "the peer used number 777777 twice; it is asked to compare"
		})
		require.Equal(t, n, tasks())
		require.Equal(t, string(signing.SeqReuse), r.Spoke.Audit(t, end)[0].Code)
		require.Zero(t, r.Spoke.Count(t, `SELECT count(*) FROM connections WHERE state <> 'active'`))

		// A hub that was restored seals it again, with another number.
		again := r.Seal(t, &commands.Spawn{Task: task, Runtime: commands.RuntimeNoop}, nil, func(h *signing.Header) { h.ID, h.Seq = second.ID, 2_000_000 })
		r.Send(t, commands.QueueRun, again.Envelope)
		meshtest.Await(t, "the task", func() bool { return tasks() == n+1 })
	})
}

// A spoke that was restored asks its hub what it has said since. What the hub makes up takes no room without end: pages that do not go
// on are refused, and behind a bound nothing more is taken.
func TestAHubThatLiesToARestoredSpoke(t *testing.T) {
	t.Parallel()
	r := meshtest.Plan{}.Rogue(t)
	done(t, r)
	lies := func(through int64) {
		r.Says(func(b *commands.Heartbeat, _ *signing.Header) {
			beats := r.Beats()
			n := beats[len(beats)-1].Connection.Numbers
			if n == nil || n.Recall == 0 {
				return
			}
			page := &commands.Recalled{From: n.Recall, Through: n.Recall + through}
			for range commands.MaxRecalled {
				page.Tasks = append(page.Tasks, commands.TaskStanding{Task: meshtest.NewID(), Command: meshtest.NewID(), SHA256: strings.Repeat("0", 64), Attempt: 1, State: commands.Running, Code: -1})
			}
			b.Connection.Numbers.Recalled = page
		})
	}
	end := r.Spoke.AuditEnd(t)
	lies(-1)
	r.Spoke.Exec(t, `UPDATE sequences SET recall_from = 1, last = 1 << 20, recalled_lost = 9900`)
	meshtest.Await(t, "a page that is refused", func() bool {
		return slices.ContainsFunc(r.Spoke.Audit(t, end), func(row store.AuditRow) bool { return row.Code == string(commands.Validation) })
	})
	r.Says(func(*commands.Heartbeat, *signing.Header) {}) // many more would suspend the connection for themselves
	require.Zero(t, r.Spoke.Count(t, `SELECT count(*) FROM recalled`))

	lies(commands.MaxRecalled - 1)
	meshtest.Await(t, "the suspension", func() bool {
		return r.Spoke.Count(t, `SELECT count(*) FROM connections WHERE state = 'suspended' AND state_by = 'self' AND state_reason LIKE '%more than 10000 tasks%have not ended; if it has%connections resume lab'`) == 1
	})

	require.Zero(t, r.Spoke.Count(t, `SELECT count(*) FROM recalled`), "the page that goes over the bound is not taken in")
	require.Equal(t, 1, r.Spoke.Count(t, `SELECT count(*) FROM sequences WHERE recall_from = 1 AND recalled_lost = 9900`))
}
