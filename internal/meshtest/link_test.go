package meshtest

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
)

// gated starts an agent that ends once open is called, and waits until it runs.
func gated(t *testing.T, m *Mesh) (task string, open func()) {
	t.Helper()
	gate := filepath.Join(t.TempDir(), "gate")
	task = m.Spawn(t, "attic", "sh", "-c", `until [ -e "$0" ]; do sleep 0.02; done; echo through`, gate)
	m.Await(t, task, commands.Running)
	return task, func() { require.NoError(t, os.WriteFile(gate, nil, 0o600)) }
}

// ended waits until a task has ended by the spoke's own record.
func ended(t *testing.T, s *Spoke, task string) {
	t.Helper()
	Await(t, "the end of the task at the spoke", func() bool {
		return s.Count(t, `SELECT count(*) FROM tasks WHERE id = $1 AND state = 'completed'`, task) == 1
	})
}

// While nothing gets through, a spoke works on and a hub takes orders; what
// both have to say arrives afterwards.
func TestAnythingCanWaitForTheLink(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		breaks func(*Proxy)
		told   bool // the result gets through all the same
	}{
		"a link that is cut":             {func(p *Proxy) { p.Cut() }, false},
		"a black hole towards the hub":   {func(p *Proxy) { p.Swallow(ToHub) }, false},
		"a black hole towards the spoke": {func(p *Proxy) { p.Swallow(ToSpoke) }, true},
		"a black hole both ways":         {func(p *Proxy) { p.Swallow(ToHub, ToSpoke) }, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := Start(t, "attic")
			s := m.Spokes["attic"]
			works, open := gated(t, m)

			tt.breaks(s.Proxy)
			open()
			ended(t, s, works)
			waits := m.Noop(t, "attic")
			if tt.told {
				m.Wait(t, works)
			}
			require.Equal(t, tt.told, m.Agent(t, works).State.Terminal())
			require.Equal(t, commands.Queued, m.Agent(t, waits).State)
			began := time.Now()
			s.Proxy.Heal()

			require.Equal(t, commands.Completed, m.Wait(t, works).State)
			require.Equal(t, commands.Completed, m.Wait(t, waits).State)
			t.Logf("%s: everything was told %s after it healed", name, time.Since(began).Round(time.Millisecond))
			m.Check(t)
		})
	}
}

func TestOrdersWaitForASpokeThatIsAway(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	m.Stop(t, "attic")
	var tasks []string
	for range 20 {
		tasks = append(tasks, m.Noop(t, "attic"))
	}

	m.Start(t, "attic")

	for _, task := range tasks {
		require.Equal(t, commands.Completed, m.Wait(t, task).State)
	}
	m.Check(t)
}

// requireNothingRefused checks that no instance has refused a message.
func requireNothingRefused(t *testing.T, m *Mesh) {
	t.Helper()
	const refusals = `SELECT count(*) FROM audit WHERE action LIKE '%.refused'`
	require.Zero(t, m.Hub.Count(t, refusals))
	for _, s := range m.Spokes {
		require.Zero(t, s.Count(t, refusals))
	}
}

// A bad line costs time and nothing else: what TLS lets through is whole.
func TestABadLine(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	p := m.Spokes["attic"].Proxy
	faults := []func(){
		func() { p.Corrupt(ToHub) },
		func() { p.Corrupt(ToSpoke) },
		p.Reset,
		func() { p.Slow(20*time.Millisecond, 60_000) },
		p.Reset,
		p.Heal,
	}
	var tasks []string
	for _, fault := range faults {
		fault()
		for range 5 {
			tasks = append(tasks, m.Noop(t, "attic"))
		}
		m.Wait(t, tasks[len(tasks)-1])
	}

	for _, task := range tasks {
		require.Equal(t, commands.Completed, m.Wait(t, task).State)
	}
	m.Check(t)
	requireNothingRefused(t, m)
}

// Whoever is started again in the middle of it all goes on where he was: every
// order is carried out, once, and an agent does not notice.
func TestRestartsInTheMiddleOfWork(t *testing.T) {
	t.Parallel()
	for _, who := range []string{"hub", "attic"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			m := Start(t, "attic")
			s := m.Spokes["attic"]
			long, open := gated(t, m)
			pid := s.Count(t, `SELECT pid FROM sessions WHERE task = $1`, long)
			var tasks []string
			for range 3 {
				for range 15 {
					tasks = append(tasks, m.Noop(t, "attic"))
				}
				m.Stop(t, who)
				m.Start(t, who)
			}
			open()

			for _, task := range append(tasks, long) {
				require.Equal(t, commands.Completed, m.Wait(t, task).State)
			}
			m.Check(t)
			require.Equal(t, len(tasks)+1, s.Count(t, `SELECT count(*) FROM tasks WHERE state = 'completed'`))
			require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM attempts WHERE task = $1`, long))
			require.Equal(t, pid, s.Count(t, `SELECT pid FROM sessions WHERE task = $1`, long))
			requireNothingRefused(t, m)
		})
	}
}

// storm is every message ten times over, in any order. The order is in the log
// of a failed test.
func storm(t *testing.T, envelopes [][]byte) [][]byte {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("storm of seed %d", seed)
	var all [][]byte
	for range 10 {
		all = append(all, envelopes...)
	}
	rand.New(rand.NewPCG(seed, 1)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

func TestAStormOfCommandsOverARestart(t *testing.T) {
	t.Parallel()
	r := Plan{}.Rogue(t)
	var envelopes [][]byte
	var ids []string
	for range 30 {
		order, _ := r.Noop(t, nil)
		envelopes, ids = append(envelopes, order.Envelope), append(ids, order.ID)
	}
	all := storm(t, envelopes)

	r.Send(t, commands.QueueRun, all[:100]...)
	r.Spoke.stop(t)
	r.Send(t, commands.QueueRun, all[100:200]...)
	r.Spoke.start(t)
	r.Send(t, commands.QueueControl, all[200:]...)

	for _, id := range ids {
		require.Equal(t, commands.Completed, r.Answer(t, id, commands.ResultKind).(*commands.Result).State)
	}
	r.drained(t)
	for table, want := range map[string]int{"tasks": 30, "attempts": 30, "inbox": 30, "outbox": 60} { // a noop is accepted, and has ended
		require.Equal(t, want, r.Spoke.Count(t, `SELECT count(*) FROM `+table), table)
	}
	require.Len(t, r.Spoke.Audit(t, 0), 2)
}

// drained sends one more message in each queue and waits until it was refused:
// then all that was sent before it was read too.
func (r *Rogue) drained(t *testing.T) {
	t.Helper()
	for _, queue := range []string{commands.QueueRun, commands.QueueControl} {
		end := r.Spoke.AuditEnd(t)
		r.Send(t, queue, []byte("the end"))
		Await(t, "the end of the queue", func() bool { return len(r.Spoke.Audit(t, end)) > 0 })
	}
}

func TestAStormOfReportsOverARestart(t *testing.T) {
	t.Parallel()
	m := Start(t)
	a := m.Attack(t, "attic")
	var envelopes [][]byte
	var tasks []string
	for range 20 {
		asked := a.Order(t, m)
		tasks = append(tasks, asked.Task)
		for _, body := range []commands.Body{
			&commands.Accepted{Task: asked.Task, State: commands.Queued},
			&commands.Started{Task: asked.Task, Attempt: 1, At: time.Now().UnixMilli()},
			&commands.Result{Task: asked.Task, State: commands.Completed, Attempt: 1, Outcome: commands.Succeeded},
		} {
			envelopes = append(envelopes, a.Seal(t, body, asked.Re, nil).Envelope)
		}
	}
	all := storm(t, envelopes)

	a.Send(t, commands.QueueEvents, all[:300]...)
	m.Stop(t, "hub")
	m.Start(t, "hub")
	Await(t, "the link", func() bool { return a.Link.State().Up })
	a.Send(t, commands.QueueEvents, slices.Concat(all[300:], envelopes)...) // what waited in the server that ended is gone, and was not confirmed

	for _, task := range tasks {
		v := m.Wait(t, task)
		require.Equal(t, commands.Completed, v.State)
	}
	end := m.Hub.AuditEnd(t)
	a.Send(t, commands.QueueEvents, []byte("the end"))
	Await(t, "the end of the storm", func() bool { return len(m.Hub.Audit(t, end)) > 0 })
	require.Equal(t, len(envelopes), m.Hub.Count(t, `SELECT count(*) FROM inbox`))
	require.Equal(t, len(tasks), m.Hub.Count(t, `SELECT count(*) FROM mirrors WHERE state = 'completed' AND accepted_at IS NOT NULL AND started_at IS NOT NULL`))
	require.Equal(t, len(tasks), m.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'mirror.completed'`), "each ended once")
	require.Len(t, m.Hub.Audit(t, 0), 1)
}

// The end of a test is the end of everything that it started.
func TestAMeshLeavesNothingBehind(t *testing.T) {
	pgtest.URL(t) // the cluster is there before and after
	before := goleak.IgnoreCurrent()
	t.Run("mesh", func(t *testing.T) {
		m := Start(t, "attic")
		m.Spawn(t, "attic", "sleep", "600")
		m.Attack(t, "thief")
		Plan{}.Rogue(t)
	})
	require.NoError(t, goleak.Find(before))
}
