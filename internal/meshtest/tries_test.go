package meshtest

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

// A failing is something that an instance does again and again, and how it is broken and mended.
type failing struct {
	on, seenBy       string // where it is broken, and who says so
	check            string // of doctor
	ready            bool   // whether the instance counts as ready all the same: another one is needed for it
	spoil, mend      string // statements for its database
	problem          string
	begins, ends     string // of the log, at its beginning and its end
	tries            string // of the log, each time
	spoilt, andAfter func(*testing.T, *Mesh)
}

const (
	spoilKeys = `CREATE TABLE saved AS SELECT kid FROM sequences; UPDATE sequences SET kid = 'ed25519:' || repeat('A', 43)`
	mendKeys  = `UPDATE sequences SET kid = (SELECT kid FROM saved)`
)

// What keeps failing is said once in the log, by doctor and by /readyz for as long as it lasts, and
// that it is over once, too.
func TestWhatKeepsFailingIsSaidOnce(t *testing.T) {
	t.Parallel()
	order := func(t *testing.T, m *Mesh) { m.Noop(t, "attic") }
	works := func(t *testing.T, m *Mesh) { require.Equal(t, commands.Completed, m.Wait(t, m.Noop(t, "attic")).State) }
	nothing := func(*testing.T, *Mesh) {}
	for name, f := range map[string]failing{
		"claims": {"attic", "attic", "claims", false,
			`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''no room for leases''; END'; CREATE TRIGGER refuse BEFORE INSERT ON leases EXECUTE FUNCTION refuse()`,
			`DROP TRIGGER refuse ON leases`, "no room for leases",
			"nothing can be claimed, so nothing new is started", "tasks are claimed again", `msg="claiming tasks"`, order, works},
		"heartbeats of a spoke": {"attic", "attic", "heartbeats", false, spoilKeys, mendKeys, "none can be made for lab: ",
			"no heartbeat can be made", "heartbeats are made again", `msg="sending a heartbeat"`, nothing, works},
		"answers of a hub": {"hub", "hub", "heartbeats", false, spoilKeys, mendKeys, "none can be made for attic: ",
			"no heartbeat can be made", "heartbeats are made again", `msg="answering a heartbeat"`, nothing, nothing},
		"a hub that does not answer": {"hub", "attic", "heartbeats to lab", true, spoilKeys, mendKeys, "not answered: ",
			"the peer does not answer heartbeats", "the peer answers heartbeats again", `msg="sending a heartbeat"`, nothing, works},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := Plan{Idle: 20 * time.Millisecond}.Start(t, "attic")
			on, i := m.instance(t, f.on), m.instance(t, f.seenBy)
			said := func(text string) int { return strings.Count(i.Log.String(), text) }

			on.Exec(t, f.spoil)
			f.spoilt(t, m)

			Await(t, "what doctor says", func() bool { return strings.Contains(i.Health(t, f.check).Problem, f.problem) })
			tries := said(f.tries)
			Await(t, "more tries", func() bool { return said(f.tries) > tries })
			require.Equal(t, 1, said(f.begins), "%s", i.Log.String())
			status, p := i.describe(t).problem(t)
			require.Equal(t, f.ready, status == http.StatusOK)
			if !f.ready {
				require.Contains(t, p.Detail, f.check+": ")
				require.Contains(t, p.Detail, f.problem)
			}
			on.Exec(t, f.mend)
			Await(t, "the end of it", func() bool { return i.Health(t, f.check).Problem == "" })
			f.andAfter(t, m)
			require.Equal(t, []int{1, 1}, []int{said(f.begins), said(f.ends)})
			status, _ = i.describe(t).problem(t)
			require.Equal(t, http.StatusOK, status)
		})
	}
}
