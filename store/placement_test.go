package store_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// fleet is a hub with the spokes attic and cellar; the tests speak for them.
type fleet struct {
	*storetest.Pair
	cellar string // connection
}

func newFleet(t *testing.T) fleet {
	t.Helper()
	p := storetest.NewPair(t)
	third := storetest.Signer(t, 21)
	keys := store.PeerKeys{Identity: third.Public(), Signing: storetest.Signer(t, 22).Public(), Sealing: bytes.Repeat([]byte{9}, 32)}
	c, err := p.Hub.DB.AddConnection(t.Context(), store.NewConnection{Keys: keys, Grant: storetest.Terms, Actor: "test",
		Connection: store.Connection{ID: storetest.NewID(), Peer: signing.InstanceIDOf(third.Public()), Name: "cellar", Authority: store.Commands, State: store.Active, LinkKey: "Ucellar"}})
	require.NoError(t, err)
	return fleet{p, c.ID}
}

func (f fleet) among(busyAttic, busyCellar int) []store.Candidate {
	return []store.Candidate{{Conn: f.Hub.Conn.ID, Slots: 4, Busy: busyAttic}, {Conn: f.cellar, Slots: 4, Busy: busyCellar}}
}

func (f fleet) anywhere(t *testing.T, among []store.Candidate, n int) (spokes []string, tasks []string) {
	t.Helper()
	var orders []store.SpawnOrder
	for range n {
		orders = append(orders, store.SpawnOrder{Anywhere: true, Among: among, Life: time.Hour, Actor: "test",
			Spawn: &commands.Spawn{Task: storetest.NewID(), Runtime: commands.RuntimeExec, Argv: []string{"true"}}})
	}
	out, err := f.Hub.DB.OrderSpawns(t.Context(), orders)
	require.NoError(t, err)
	for _, o := range out {
		require.Nil(t, o.Err)
		spokes, tasks = append(spokes, o.Spoke), append(tasks, o.Task)
	}
	return spokes, tasks
}

// refuse lets attic refuse what it was ordered, and the hub hear it.
func (f fleet) refuse(t *testing.T, code commands.Code, among []store.Candidate) []*store.Incoming {
	t.Helper()
	for _, in := range f.Spoke.Read(t, f.Hub.Due(t)...) {
		require.NoError(t, f.Spoke.DB.Tx(t.Context(), "refusing", func(_ context.Context, tx *store.Tx) error {
			in.Answer(tx, &commands.RefusedBody{Task: in.Body.TaskID(), Code: code, Why: "not here", Policy: "v1"})
			return nil
		}))
	}
	return f.report(t, among)
}

// The audit of the hub says why an order was refused, as its spoke does.
func TestTheAuditSaysWhyAnOrderWasRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	task := f.Order(t, nil)

	f.refuse(t, commands.Policy, nil)

	rows, err := f.Hub.DB.AuditTrail(t.Context(), task, 0, 10)
	require.NoError(t, err)
	last := rows[len(rows)-1]
	require.Equal(t, []string{"mirror.unavailable", "policy_denied", "not here"}, []string{last.Action, last.Code, last.Why})
}

func (f fleet) report(t *testing.T, among []store.Candidate) []*store.Incoming {
	t.Helper()
	batch := f.Hub.Read(t, f.Spoke.Due(t)...)
	_, err := f.Hub.DB.TakeIn(t.Context(), f.Hub.Conn.ID, 20, batch, store.MoveMirrors(func(*commands.Spawn, store.Refusal) []store.Candidate { return among }))
	require.NoError(t, err)
	return batch
}

// What was ordered and not answered is work, whoever counts it: no heartbeat
// has told of it yet.
func TestOrdersThatAreNotAnsweredAreCounted(t *testing.T) {
	t.Parallel()
	f := newFleet(t)

	one, _ := f.anywhere(t, f.among(0, 0), 1)
	two, _ := f.anywhere(t, f.among(0, 0), 1)
	four, _ := f.anywhere(t, f.among(0, 0), 4)
	loaded, _ := f.anywhere(t, f.among(9, 0), 6)

	require.Equal(t, []string{"attic"}, one)
	require.Equal(t, []string{"cellar"}, two, "in another call")
	require.ElementsMatch(t, []string{"attic", "attic", "cellar", "cellar"}, four, "in the same transaction")
	require.Equal(t, []string{"cellar", "cellar", "cellar", "cellar", "cellar", "cellar"}, loaded)
}

func TestAcceptedOrdersAreCountedUntilAHeartbeatDoes(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	_, _ = f.anywhere(t, f.among(0, 100), 3)
	require.NoError(t, f.Hub.Exec(`UPDATE mirrors SET accepted_at = now() - interval '10 seconds'`))
	aged := func(age time.Duration) []store.Candidate {
		list := f.among(0, 2)
		list[0].Age = age
		return list
	}

	before, _ := f.anywhere(t, aged(time.Minute), 1)
	after, _ := f.anywhere(t, aged(time.Second), 1)

	require.Equal(t, []string{"cellar"}, before, "the heartbeat is older than the acceptance")
	require.Equal(t, []string{"attic"}, after)
}

func TestOneKeyIsOneOrderWhereverItGoes(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	order := func(among []store.Candidate) store.Ordered {
		out, err := f.Hub.DB.OrderSpawns(t.Context(), []store.SpawnOrder{{Anywhere: true, Among: among, Life: time.Hour, Actor: "test", IdempotencyKey: "k",
			Nowhere: commands.Refuse(commands.NoSpoke, "nobody is there"), Spawn: &commands.Spawn{Task: storetest.NewID(), Runtime: commands.RuntimeNoop}}})
		require.NoError(t, err)
		return out[0]
	}
	first := order(f.among(0, 0))

	again, alone := order(f.among(9, 0)), order(nil)

	require.Equal(t, "attic", first.Spoke)
	first.Existing = true
	require.Equal(t, first, again)
	require.Equal(t, first, alone, "an order that is there needs no spoke")
}

func TestConnectionsThatAreNotActiveAreNoPlace(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	_, err := f.Hub.DB.SetConnectionState(t.Context(), f.cellar, store.Suspended, "holiday", "test", nil)
	require.NoError(t, err)

	spokes, _ := f.anywhere(t, f.among(100, 0), 1)

	require.Equal(t, []string{"attic"}, spokes, "whatever the roster said a moment ago")
}

func TestARefusedOrderGoesToTheNextSpoke(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		code   commands.Code
		before string // what happened to the order before the refusal came
		to     string // the spoke that has it in the end
		state  commands.State
	}{
		"refused by policy":                        {commands.Policy, "", "cellar", commands.Queued},
		"refused by grant":                         {commands.Grant, "", "cellar", commands.Queued},
		"refused by capability":                    {commands.Capability, "", "cellar", commands.Queued},
		"refused because nobody could run it":      {commands.Validation, "", "attic", commands.Unavailable},
		"refused as too late":                      {signing.TimeExpired, "", "attic", commands.Expired},
		"refused after its last moment":            {commands.Policy, `UPDATE mirrors SET expires_at = now()`, "attic", commands.Unavailable},
		"refused, and was to be killed":            {commands.Policy, `UPDATE mirrors SET kill = '[{}]'`, "attic", commands.Unavailable},
		"refused, and ordered for that very spoke": {commands.Policy, `UPDATE mirrors SET anywhere = false`, "attic", commands.Unavailable},
		"refused by the last one":                  {commands.Policy, `UPDATE mirrors SET refusals = jsonb_build_array(jsonb_build_object('conn', (SELECT id FROM connections WHERE peer_name = 'cellar'), 'spoke', 'cellar'))`, "attic", commands.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			_, tasks := f.anywhere(t, f.among(0, 100), 1)
			was := f.Mirror(t, tasks[0])
			if tt.before != "" {
				require.NoError(t, f.Hub.Exec(tt.before))
			}

			cellar := f.Hub.DB.NewCursor(f.cellar)

			f.refuse(t, tt.code, f.among(0, 0))

			m := f.Mirror(t, tasks[0])
			require.Equal(t, tt.state, m.State)
			require.Equal(t, tt.to, m.Spoke)
			no := m.Refusals[len(m.Refusals)-1]
			require.Equal(t, []any{"attic", tt.code, "not here", "v1"}, []any{no.Spoke, no.Code, no.Why, no.Policy})
			receipts, err := f.Hub.DB.Receipts(t.Context(), tasks[0])
			require.NoError(t, err)
			require.Len(t, receipts, 1, "the signed refusal is kept with the task")
			sent := f.Hub.Count(t, `SELECT count(*) FROM outbox WHERE conn = $1`, f.cellar)
			if tt.to == "attic" {
				require.Zero(t, sent)
				return
			}
			require.Equal(t, 1, sent)
			<-cellar.Pending() // what was ordered again is handed to its relay
			require.NotEqual(t, was.Command, m.Command)
			require.WithinDuration(t, was.ExpiresAt, m.ExpiresAt, time.Second, "no spoke may start it later than was asked")
			require.Equal(t, 1, f.Hub.Count(t, `SELECT count(*) FROM outbox WHERE id = $1 AND conn = $2`, m.Command, f.cellar))
			require.Equal(t, 1, f.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.refused' AND object = $1 AND code = $2 AND conn = $3`, tasks[0], tt.code, f.Hub.Conn.ID))
			require.Nil(t, m.Refusal, "nobody has had the last word")
		})
	}
}

// Whoever takes in output has a log and may wait for numbers: while the log is waited for, nobody
// waits for the numbers.
func TestTheOutputOfARefusedOrderComesBeforeTheNumbers(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	_, tasks := f.anywhere(t, f.among(0, 100), 1)
	require.NoError(t, f.Hub.Exec(`INSERT INTO logs (task, conn) VALUES ($1, $2)`, tasks[0], f.Hub.Conn.ID))
	output, other := session(t, f.Hub), session(t, f.Hub)
	tx, err := output.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM logs FOR UPDATE`)
	require.NoError(t, err)
	done := make(chan struct{})

	go func() { defer close(done); f.refuse(t, commands.Policy, f.among(0, 0)) }()
	for waits := false; !waits; {
		require.NoError(t, other.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waits))
	}

	_, err = other.Exec(t.Context(), `SELECT FROM sequences FOR UPDATE NOWAIT`)
	require.NoError(t, err, "the numbers of both connections")
	require.NoError(t, tx.Commit(t.Context()))
	<-done
	require.Equal(t, "cellar", f.Mirror(t, tasks[0]).Spoke)
	require.Zero(t, f.Hub.Count(t, `SELECT count(*) FROM logs`))
}

// session is one with the database of s, by the way.
func session(t *testing.T, s *storetest.Side) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Admin(s.URL))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// What the first spoke says after it has refused belongs to another command.
func TestTheFirstSpokeHasNoSayAnyMore(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	_, tasks := f.anywhere(t, f.among(0, 100), 1)
	old := f.Spoke.Read(t, f.Hub.Due(t)...)[0]
	f.Hub.Out = f.Hub.DB.NewCursor(f.Hub.Conn.ID)
	f.refuse(t, commands.Policy, f.among(0, 0))
	require.NoError(t, f.Spoke.DB.Tx(t.Context(), "claiming to have done it", func(_ context.Context, tx *store.Tx) error {
		old.Answer(tx, &commands.Result{Task: tasks[0], State: commands.Completed, Attempt: 1, Outcome: commands.Succeeded})
		return nil
	}))

	f.report(t, nil)

	m := f.Mirror(t, tasks[0])
	require.Equal(t, []any{"cellar", commands.Queued}, []any{m.Spoke, m.State})
}
