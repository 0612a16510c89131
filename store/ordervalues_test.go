package store_test

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/canary"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/postgres"
)

const hunter = "hunter2-in-the-environment"

func withValue(o *store.SpawnOrder, value string) {
	o.Spawn.Env = []commands.EnvVar{{Name: "TOKEN", As: commands.EnvSecret}, {Name: "CI"}}
	o.Values = commands.Values{commands.NewSecret(value), commands.NewSecret("1")}
}

// dump is the whole database as text.
func dump(t *testing.T, url string) []byte {
	t.Helper()
	programs, err := postgres.Find(t.Context(), "")
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), filepath.Join(programs, "pg_dump"), "--inserts", "-d", pgtest.Admin(url)).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "TOKEN", "it has names")
	return out
}

// spawnOf opens the values of the only spawn among messages for a side.
func spawnOf(t *testing.T, to *storetest.Side, envelopes [][]byte) (*store.Incoming, commands.Values, error) {
	t.Helper()
	list := to.Read(t, envelopes...)
	require.Len(t, list, 1)
	m := list[0]
	values, err := m.Body.(*commands.Spawn).Values(to.Sealing, commands.ValuesPlace(to.Self(), m.Conn, m.Header.ID))
	return m, values, err
}

func TestValuesAreSealedInTheDatabase(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	task := p.Order(t, func(o *store.SpawnOrder) { withValue(o, hunter) })

	_, values, err := spawnOf(t, p.Spoke, p.Hub.Due(t))

	require.NoError(t, err)
	require.Equal(t, hunter, values[0].Reveal())
	require.Zero(t, p.Hub.Count(t, `SELECT count(*) FROM order_values`), "of an order that goes nowhere else nothing is kept")
	spec := string(p.Mirror(t, task).Spec)
	require.Contains(t, spec, "TOKEN")
	require.NotContains(t, spec, "sealed", "people are shown names")
	require.False(t, canary.Of(hunter).In(dump(t, p.Hub.URL)))
	require.True(t, canary.Of("TOKEN").In(dump(t, p.Hub.URL)), "what is signed is looked into")
}

// An order that one spoke refuses goes to another one with its values, sealed anew for that.
func TestValuesGoElsewhereWithTheirOrder(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	q := p.Another(t)
	among := []store.Candidate{{Conn: p.Hub.Conn.ID, Slots: 4}, {Conn: q.Hub.Conn.ID, Slots: 4, Busy: 2}}
	spawn := &commands.Spawn{Task: storetest.NewID(), Runtime: commands.RuntimeExec, Argv: []string{"true"}}
	order := store.SpawnOrder{Anywhere: true, Among: among, Life: time.Hour, Actor: "test", Spawn: spawn}
	withValue(&order, hunter)
	out, err := p.Hub.DB.OrderSpawns(t.Context(), []store.SpawnOrder{order})
	require.NoError(t, err)
	require.Equal(t, "attic", out[0].Spoke)
	first, _, err := spawnOf(t, p.Spoke, p.Hub.Due(t))
	require.NoError(t, err)
	require.False(t, canary.Of(hunter).In(dump(t, p.Hub.URL)), "while it is kept for another spoke")

	refuseOne(t, p, first, among)

	second, values, err := spawnOf(t, q.Spoke, q.Hub.Due(t))
	require.NoError(t, err)
	require.Equal(t, hunter, values[0].Reveal())
	require.NotEqual(t, first.Header.ID, second.Header.ID)
	_, err = second.Body.(*commands.Spawn).Values(p.Spoke.Sealing, commands.ValuesPlace(p.Spoke.Self(), first.Conn, first.Header.ID))
	require.Equal(t, commands.Code("SEAL_OPEN"), commands.CodeOf(err), "who refused it does not open what another one got")
	require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET accepted_at = now()`))
	_, err = p.Hub.DB.Prune(t.Context(), 0, time.Minute)
	require.NoError(t, err)
	require.Zero(t, p.Hub.Count(t, `SELECT count(*) FROM order_values`), "once a spoke has it")
}

// refuseOne lets a spoke refuse one order, and the hub hear it.
func refuseOne(t *testing.T, p *storetest.Pair, in *store.Incoming, among []store.Candidate) {
	t.Helper()
	require.NoError(t, p.Spoke.DB.Tx(t.Context(), "refusing", func(_ context.Context, tx *store.Tx) error {
		in.Answer(tx, &commands.RefusedBody{Task: in.Body.TaskID(), Code: commands.Policy, Why: "not here"})
		return nil
	}))
	batch := p.Hub.Read(t, p.Spoke.Due(t)...)
	_, err := p.Hub.DB.TakeIn(t.Context(), p.Hub.Conn.ID, 20, batch, store.MoveMirrors(func(*commands.Spawn, store.Refusal) []store.Candidate { return among }))
	require.NoError(t, err)
}

// Values that cannot be opened any more stop nothing: the refusal stands, and the audit says why.
func TestAnOrderWhoseValuesAreSpoiltStaysRefused(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	q := p.Another(t)
	among := []store.Candidate{{Conn: p.Hub.Conn.ID, Slots: 4}, {Conn: q.Hub.Conn.ID, Slots: 4, Busy: 2}}
	order := store.SpawnOrder{Anywhere: true, Among: among, Life: time.Hour, Actor: "test", Spawn: &commands.Spawn{Task: storetest.NewID(), Runtime: commands.RuntimeExec, Argv: []string{"true"}}}
	withValue(&order, hunter)
	out, err := p.Hub.DB.OrderSpawns(t.Context(), []store.SpawnOrder{order})
	require.NoError(t, err)
	first, _, err := spawnOf(t, p.Spoke, p.Hub.Due(t))
	require.NoError(t, err)
	require.NoError(t, p.Hub.Exec(`UPDATE order_values SET box = set_byte(box, 40, get_byte(box, 40) # 1)`))

	refuseOne(t, p, first, among)

	require.Equal(t, commands.Unavailable, p.Mirror(t, out[0].Task).State)
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.values_lost' AND code = 'SEAL_OPEN'`))
}

// The same order is known again, although its values are sealed anew each time; one with
// another value is another order.
func TestAnOrderWithValuesIsKnownAgain(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	give := func(value, key string) store.Ordered {
		o := store.SpawnOrder{Conn: p.Hub.Conn.ID, Life: time.Hour, Actor: "test", IdempotencyKey: key,
			Spawn: &commands.Spawn{Task: storetest.NewID(), Runtime: commands.RuntimeExec, Argv: []string{"true"}}}
		withValue(&o, value)
		out, err := p.Hub.DB.OrderSpawns(t.Context(), []store.SpawnOrder{o})
		require.NoError(t, err)
		return out[0]
	}
	first := give(hunter, "k")

	again, other := give(hunter, "k"), give(hunter+"3", "k")

	require.True(t, again.Existing)
	require.Nil(t, again.Err)
	require.Equal(t, first.Task, again.Task)
	require.Equal(t, commands.Idempotency, other.Err.Code)
	digest := func(of *storetest.Pair) []byte {
		var sum []byte
		require.NoError(t, of.Hub.DB.Tx(t.Context(), "reading a digest", func(ctx context.Context, tx *store.Tx) error {
			return tx.QueryRow(ctx, `SELECT request_digest FROM mirrors`).Scan(&sum)
		}))
		return sum
	}
	require.NotEmpty(t, digest(p))
	require.False(t, bytes.Contains(digest(p), []byte(hunter)))
}

// What values cost an order: one without any pays nothing.
func BenchmarkOrderWithValues(b *testing.B) {
	for name, n := range map[string]int{"none": 0, "one": 1, "twenty": 20} {
		b.Run(name, func(b *testing.B) {
			p := storetest.NewPair(b)
			for b.Loop() {
				p.Order(b, func(o *store.SpawnOrder) {
					for i := range n {
						o.Spawn.Env = append(o.Spawn.Env, commands.EnvVar{Name: fmt.Sprint("V", i)})
						o.Values = append(o.Values, commands.NewSecret(hunter))
					}
				})
			}
		})
	}
}
