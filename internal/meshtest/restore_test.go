package meshtest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/scale"
)

// traced are orders of agents that each write a line when they start. They wait
// for the gate before they end.
type traced struct {
	dir, gate string
	tasks     map[string]string // id to the name of its trace
}

func newTraced(t *testing.T) *traced {
	dir := t.TempDir()
	return &traced{dir, filepath.Join(dir, "gate"), map[string]string{}}
}

func (r *traced) order(t *testing.T, m *Mesh, gate string) string {
	t.Helper()
	return r.give(t, m, gate).ID
}

// give gives an order that may be given again under its id.
func (r *traced) give(t *testing.T, m *Mesh, gate string) hub.SpawnRequest {
	t.Helper()
	trace := filepath.Join(r.dir, fmt.Sprint("trace", len(r.tasks)))
	order := hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec,
		Argv: []string{"sh", "-c", `echo ran >>"$0"; until [ -e "$1" ]; do sleep 0.02; done`, trace, gate}}}
	order.ID = m.Order(t, order)
	r.tasks[order.ID] = trace
	return order
}

func (r *traced) open(t *testing.T) { require.NoError(t, os.WriteFile(r.gate, nil, 0o600)) }

// runs returns how often an order has run.
func (r *traced) runs(t *testing.T, task string) int {
	t.Helper()
	raw, err := os.ReadFile(r.tasks[task])
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return strings.Count(string(raw), "ran")
}

// agreeAgain waits until both sides of a connection relay and say so, the spoke with a heartbeat that comes now: the last one may be of
// before a restore.
func agreeAgain(t *testing.T, m *Mesh, name string) {
	t.Helper()
	since := time.Now()
	m.AwaitLink(t, name)
	Await(t, "that the histories agree", func() bool {
		v := m.View(t, name)
		return v.LastSeen != nil && v.LastSeen.After(since) && v.Differs == "" && v.Says.Agrees && v.Says.Differs == ""
	})
}

// points are where one spawn can be when a backup is made. Each brings it there.
var points = map[string]func(t *testing.T, m *Mesh, r *traced) string{
	"it was ordered": func(t *testing.T, m *Mesh, r *traced) string {
		m.Spokes["attic"].Proxy.Cut()
		return r.order(t, m, r.gate)
	},
	"it was relayed": func(t *testing.T, m *Mesh, r *traced) string {
		attic := m.Spokes["attic"]
		release := attic.holdInbox(t)
		task := r.order(t, m, r.gate)
		Await(t, "that it has come to the spoke", func() bool { return m.waits(t, "attic") })
		attic.Proxy.Cut()
		m.Stop(t, "attic")
		release() // what waited for it is rolled back: nobody is there to commit it
		Await(t, "the end of that", func() bool {
			return attic.Count(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle' AND pid <> pg_backend_pid()`) == 0
		})
		require.Zero(t, attic.Count(t, `SELECT count(*) FROM inbox WHERE task = $1`, task))
		m.Start(t, "attic")
		return task
	},
	"it was queued": func(t *testing.T, m *Mesh, r *traced) string {
		for range 2 { // all slots
			m.Await(t, r.order(t, m, r.gate), commands.Running)
		}
		task := r.order(t, m, r.gate)
		Await(t, "its acceptance", func() bool { return m.Agent(t, task).AcceptedAt != nil })
		return task
	},
	"it was started": func(t *testing.T, m *Mesh, r *traced) string {
		task := r.order(t, m, r.gate)
		m.Await(t, task, commands.Running)
		return task
	},
	"it had ended unheard": func(t *testing.T, m *Mesh, r *traced) string {
		task := r.order(t, m, r.gate)
		m.Await(t, task, commands.Running)
		m.Spokes["attic"].Proxy.Cut()
		r.open(t)
		ended(t, m.Spokes["attic"], task)
		return task
	},
	"it was confirmed": func(t *testing.T, m *Mesh, r *traced) string {
		r.open(t)
		task := r.order(t, m, r.gate)
		m.Wait(t, task)
		return task
	},
}

// A disaster takes databases back to an earlier time.
type disaster struct {
	sides []string // whose
	gone  bool     // the spoke's agents have left nothing behind either
}

var disasters = map[string]disaster{
	"a hub":                           {sides: []string{"hub"}},
	"a spoke":                         {sides: []string{"attic"}},
	"a spoke without its directories": {sides: []string{"attic"}, gone: true},
	"both sides at once":              {sides: []string{"hub", "attic"}},
}

func (d disaster) has(side string) bool { return slices.Contains(d.sides, side) }

// backUp returns a backup of each side that is to be restored.
func (d disaster) backUp(t *testing.T, m *Mesh) map[string]string {
	t.Helper()
	backups := map[string]string{}
	for _, side := range d.sides {
		m.Stop(t, side)
		backups[side] = m.instance(t, side).Backup(t)
	}
	for _, side := range d.sides {
		m.Start(t, side)
	}
	return backups
}

// restore restores the backups.
func (d disaster) restore(t *testing.T, m *Mesh, backups map[string]string) {
	t.Helper()
	for _, side := range d.sides {
		m.Stop(t, side)
		m.instance(t, side).Restore(t, backups[side])
	}
	if d.gone {
		require.NoError(t, os.RemoveAll(filepath.Join(m.Spokes["attic"].Dir, "agents")))
	}
	for _, side := range d.sides {
		m.Start(t, side)
	}
}

// What was restored from an older backup goes on by itself. Every order that is
// known ends with the outcome that it had, and none runs twice: neither those that
// the backup had still to run, nor those that it does not know, nor those that
// were given before the first link. make chaos tries all of them.
func TestWhatWasRestoredGoesOnByItself(t *testing.T) {
	t.Parallel()
	for _, c := range restores(t) {
		t.Run(fmt.Sprintf("%s, to when %s, %d orders ago", c.disaster, c.point, c.since), func(t *testing.T) {
			t.Parallel()
			c.run(t)
		})
	}
}

// Disasters may come one after the other: what a spoke that was restored has learnt from its
// hub of an end, a hub that is restored then learns from the spoke.
func TestAnEndThatWasRecalledIsNotLostWithItsHub(t *testing.T) {
	t.Parallel()
	m, r := Start(t, "attic"), newTraced(t)
	hub, attic := disaster{sides: []string{"hub"}}, disaster{sides: []string{"attic"}}
	empty := hub.backUp(t, m)
	m.AwaitLink(t, "attic")
	task := r.order(t, m, r.gate)
	m.Await(t, task, commands.Running)
	runs := attic.backUp(t, m)
	r.open(t)
	m.Wait(t, task)

	attic.restore(t, m, runs)
	agreeAgain(t, m, "attic")
	Await(t, "the end at the spoke", func() bool {
		return m.Spokes["attic"].Count(t, `SELECT count(*) FROM tasks WHERE state = 'completed'`) == 1
	})
	m.AwaitLink(t, "attic")
	hub.restore(t, m, empty)
	agreeAgain(t, m, "attic")

	Await(t, "the order", func() bool { return m.Hub.Count(t, `SELECT count(*) FROM mirrors WHERE task = $1`, task) == 1 })
	require.Equal(t, commands.Completed, m.Wait(t, task).State)
	require.Equal(t, 1, r.runs(t, task))
	require.Zero(t, m.Hub.Count(t, `SELECT count(*) FROM audit WHERE code = 'RESULT_CONFLICT'`))
}

// A restore is one way in which it may happen.
type restore struct {
	disaster, point string
	since           int // orders between the backup and the disaster
}

// restores are all of them with SPAWNMESH_RESTORES=1. Otherwise they are each
// disaster at one point, as a seed has it, and in make test-long each at three, and each point.
func restores(t *testing.T) []restore {
	var list []restore
	choice := rand.New(rand.NewPCG(scale.Seed(t, "SPAWNMESH_RESTORE_SEED"), 0))
	all := scale.Of(t, "SPAWNMESH_RESTORES", 0) == 1
	more := 0 // points after the one that a disaster begins with
	if scale.Long() {
		more = 2
	}
	at := slices.Sorted(maps.Keys(points))
	choice.Shuffle(len(at), func(i, j int) { at[i], at[j] = at[j], at[i] })
	for i, what := range slices.Sorted(maps.Keys(disasters)) {
		for j, point := range at {
			since := []int{0, 1}
			if point == "it was started" {
				since = append(since, 50) // what comes after a point is the same for all
			}
			if one := choice.IntN(len(since)); !all {
				since = since[one : one+1]
			}
			for _, n := range since {
				if all || j >= i && j <= i+more {
					list = append(list, restore{what, point, n})
				}
			}
		}
	}
	return list
}

func (c restore) run(t *testing.T) {
	d := disasters[c.disaster]
	m, r := Plan{Slots: 2}.Start(t, "attic"), newTraced(t)
	known := []string{points[c.point](t, m, r)}
	backups := d.backUp(t, m)
	m.Spokes["attic"].Proxy.Heal()
	r.open(t)
	for range c.since {
		r.order(t, m, r.gate)
	}
	for task := range r.tasks {
		m.Wait(t, task)
	}
	late := r.order(t, m, r.gate+"-late") // runs at the time of the disaster
	m.Await(t, late, commands.Running)

	m.Spokes["attic"].Proxy.Cut()
	d.restore(t, m, backups)
	for range 3 {
		known = append(known, r.order(t, m, r.gate))
	}
	m.Spokes["attic"].Proxy.Heal()

	agreeAgain(t, m, "attic")
	require.NoError(t, os.WriteFile(r.gate+"-late", nil, 0o600))
	if d.has("hub") && !d.has("attic") { // it learns its own orders from the spoke
		for task := range r.tasks {
			Await(t, "order "+task, func() bool { return m.Hub.Count(t, `SELECT count(*) FROM mirrors WHERE task = $1`, task) == 1 })
			known = append(known, task)
		}
	}
	for _, task := range known {
		require.Equal(t, commands.Completed, m.Wait(t, task).State)
	}
	if !d.has("hub") {
		v := m.Wait(t, late)
		require.Equal(t, d.gone, v.State == commands.Failed && v.Reason == commands.ExecutorDied, "%s %s", v.State, v.Reason)
		require.Equal(t, !d.gone, v.State == commands.Completed, "%s %s", v.State, v.Reason)
	}
	m.rest(t)
	m.agreeAbout(t)
	for task := range r.tasks {
		require.Equal(t, 1, r.runs(t, task))
	}
	for _, side := range d.sides {
		require.Equal(t, 1, m.instance(t, side).Count(t, resyncs+` AND actor = 'self' AND why LIKE '%numbers go on after%'`), "%s says so", side)
	}
	for _, i := range []*Instance{m.Hub.Instance, m.Spokes["attic"].Instance} {
		require.Zero(t, i.Count(t, `SELECT count(*) FROM connections WHERE state <> 'active'`))
		require.Zero(t, i.Count(t, `SELECT count(*) FROM freezes`))
		require.Zero(t, i.Count(t, `SELECT count(*) FROM audit WHERE action LIKE 'connection.%' AND object = ''`), "each names the connection")
		require.Zero(t, i.Count(t, `SELECT count(*) FROM audit WHERE code IN ('SEQ_REUSE', 'RESULT_CONFLICT')`))
	}
}

const resyncs = `SELECT count(*) FROM audit WHERE code = 'RESYNC' AND action = 'connection.resync'`

// agreeAbout compares the tasks that both sides know.
func (m *Mesh) agreeAbout(t testing.TB) {
	t.Helper()
	s := m.Spokes["attic"]
	theirs := s.Pairs(t, `SELECT id::text, state::text FROM standing`)
	for task, state := range m.Hub.Pairs(t, `SELECT task::text, state::text FROM mirrors`) {
		if is, here := theirs[task]; here {
			require.Equal(t, state, is, "task %s", task)
		}
	}
}

// A connection that was revoked after the backup stays so: the data directory
// knows of it.
func TestARestoreLetsNobodyInAgain(t *testing.T) {
	t.Parallel()
	for _, side := range []string{"hub", "attic"} {
		t.Run(side, func(t *testing.T) {
			t.Parallel()
			m := Start(t, "attic", "loft")
			attic, conn := m.Spokes["attic"], m.View(t, "attic").ID
			m.Stop(t, side)
			backup := m.instance(t, side).Backup(t)
			m.Start(t, side)
			m.AwaitLink(t, "attic")
			attic.Proxy.Cut() // nobody else hears of it
			m.instance(t, side).Do(t, "POST", "/api/v1/connections/"+conn+"/revoke", map[string]any{"reason": "over"}, nil)
			m.Stop(t, side)

			m.instance(t, side).Restore(t, backup)
			m.Start(t, side)

			state := func() (s string) {
				require.NoError(t, m.instance(t, side).SQL.QueryRow(t.Context(), `SELECT state FROM connections WHERE id = $1`, conn).Scan(&s))
				return s
			}
			Await(t, "its end", func() bool { return state() == "revoked" })
			attic.Proxy.Heal()
			m.AwaitLink(t, "loft")
			require.Equal(t, "revoked", state())
			require.Equal(t, commands.Completed, m.Wait(t, m.Noop(t, "loft")).State)
		})
	}
}

// A disk that takes no file holds up no revocation; the list is written later.
func TestARevocationDoesNotWaitForTheList(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	conn, block := m.View(t, "attic").ID, filepath.Join(m.Hub.Dir, "ended.new")
	require.NoError(t, os.MkdirAll(filepath.Join(block, "full"), 0o700))

	m.Hub.Do(t, "POST", "/api/v1/connections/"+conn+"/revoke", map[string]any{"reason": "over"}, nil)

	Await(t, "the end of the link", func() bool { return strings.Contains(m.Hub.Log.String(), "listing the connections that have ended") })
	require.NoFileExists(t, filepath.Join(m.Hub.Dir, "ended"))
	require.False(t, m.View(t, conn).Linked)
	require.NoError(t, os.RemoveAll(block))
	Await(t, "the list", func() bool {
		raw, _ := os.ReadFile(filepath.Join(m.Hub.Dir, "ended"))
		return strings.Contains(string(raw), conn)
	})
}
