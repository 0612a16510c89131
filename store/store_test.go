package store_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// side is one instance of a pair: its database and keys.
type side struct {
	db   *store.DB
	url  string
	id   *signing.Signer
	sign *signing.Signer
	conn store.Connection
	open signing.Verifier
	out  *store.Cursor
}

func (s *side) self() signing.InstanceID { return signing.InstanceIDOf(s.id.Public()) }

// pair is a hub and a spoke joined by hand: what one has in its outbox, the test
// carries to the other.
type pair struct {
	hub, spoke *side
}

func signer(t testing.TB, b byte) *signing.Signer {
	t.Helper()
	s, err := signing.NewSigner(bytes.Repeat([]byte{b}, 32))
	require.NoError(t, err)
	return s
}

func newSide(t testing.TB, identity, sign byte) *side {
	t.Helper()
	s := &side{url: pgtest.URL(t), id: signer(t, identity), sign: signer(t, sign)}
	db, err := store.Open(t.Context(), store.Config{URL: s.url, Self: s.self(), Signer: s.sign, PoolSize: 8})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	s.db, s.out = db, db.NewCursor()
	return s
}

var allTerms = store.GrantTerms{Kinds: []string{"agent.spawn", "agent.kill", "agent.status"}, Runtimes: []string{"exec", "noop"}}

func newPair(t testing.TB) *pair {
	t.Helper()
	p := &pair{hub: newSide(t, 1, 2), spoke: newSide(t, 3, 4)}
	conn := uuid.Must(uuid.NewV7()).String()
	join := func(me, peer *side, name string, a store.Authority) {
		c, err := me.db.AddConnection(t.Context(), store.NewConnection{
			Connection: store.Connection{ID: conn, Peer: peer.self(), Name: name, Authority: a, State: store.Active, LinkKey: "U" + name},
			Keys:       store.PeerKeys{Identity: peer.id.Public(), Signing: peer.sign.Public(), Sealing: bytes.Repeat([]byte{byte(len(name))}, 32)},
			Grant:      allTerms, Actor: "test"})
		require.NoError(t, err)
		me.conn = c
		me.open, err = me.db.Verifier(t.Context(), c)
		require.NoError(t, err)
	}
	join(p.hub, p.spoke, "attic", store.Commands)
	join(p.spoke, p.hub, "lab", store.Obeys)
	return p
}

// read opens messages as a receiving room does.
func (s *side) read(t testing.TB, wires ...[]byte) []store.Incoming {
	t.Helper()
	var list []store.Incoming
	for _, w := range wires {
		o, err := s.open.Open(w, time.Now())
		require.NoError(t, err)
		c, err := commands.Parse(o)
		require.NoError(t, err)
		list = append(list, store.Incoming{Conn: s.conn.ID, Header: o.Header(), Digest: o.Digest(), Wire: w, Body: c.Body})
	}
	return list
}

func (s *side) due(t testing.TB) [][]byte {
	t.Helper()
	out, err := s.out.Next(t.Context(), []string{s.conn.ID}, 1000)
	require.NoError(t, err)
	var wires [][]byte
	for _, o := range out {
		wires = append(wires, o.Wire)
	}
	return wires
}

func (p *pair) toSpoke(t testing.TB) []store.Taken {
	t.Helper()
	taken, err := p.spoke.db.Intake(t.Context(), p.spoke.read(t, p.hub.due(t)...))
	require.NoError(t, err)
	return taken.Each
}

func (p *pair) toHub(t testing.TB) store.Ingested {
	t.Helper()
	in, err := p.hub.db.Ingest(t.Context(), p.hub.read(t, p.spoke.due(t)...))
	require.NoError(t, err)
	for _, n := range in.Notes {
		_, err := p.spoke.db.Intake(t.Context(), p.spoke.read(t, n.Wire))
		require.NoError(t, err)
	}
	return in
}

func newTask() string { return uuid.Must(uuid.NewV7()).String() }

func (p *pair) order(t testing.TB, change func(*store.SpawnOrder)) string {
	t.Helper()
	o := store.SpawnOrder{Conn: p.hub.conn.ID, Life: time.Hour, Actor: "test",
		Spawn: &commands.Spawn{Task: newTask(), Runtime: commands.RuntimeExec, Argv: []string{"true"}}}
	if change != nil {
		change(&o)
	}
	out, err := p.hub.db.OrderSpawns(t.Context(), []store.SpawnOrder{o})
	require.NoError(t, err)
	require.Nil(t, out[0].Err)
	return out[0].Task
}

func (p *pair) mirror(t testing.TB, task string) store.Mirror {
	t.Helper()
	list, err := p.hub.db.FindMirrors(t.Context(), task)
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0]
}

func (p *pair) claim(t testing.TB, n int) []store.Claimed {
	t.Helper()
	list, err := p.spoke.db.Claim(t.Context(), store.ClaimTerms{Owner: "w", Limit: n, Lease: time.Minute})
	require.NoError(t, err)
	return list
}

func (p *pair) start(t testing.TB, c store.Claimed) {
	t.Helper()
	held, err := p.spoke.db.Record(t.Context(), []store.Progress{{Start: &store.Start{Fence: c.Fence, Pid: 1, BootID: "b"}}})
	require.NoError(t, err)
	require.Equal(t, []bool{true}, held)
}

func (p *pair) end(t testing.TB, f store.Fence, o commands.Outcome) bool {
	t.Helper()
	held, err := p.spoke.db.Record(t.Context(), []store.Progress{{End: &store.End{Fence: f, Outcome: o}}})
	require.NoError(t, err)
	return held[0]
}

func rows(t testing.TB, s *side, sql string, args ...any) int {
	t.Helper()
	n, err := store.CountForTest(s.db, sql, args...)
	require.NoError(t, err)
	return n
}

func TestOneSpawnFromOrderToResult(t *testing.T) {
	t.Parallel()
	p := newPair(t)

	task := p.order(t, nil)
	p.toSpoke(t)
	p.toHub(t)
	require.NotNil(t, p.mirror(t, task).AcceptedAt)
	c := p.claim(t, 5)
	require.Len(t, c, 1)
	require.Equal(t, []string{"true"}, c[0].Spec.Argv)
	p.start(t, c[0])
	p.toHub(t)
	require.Equal(t, commands.Running, p.mirror(t, task).State)
	require.True(t, p.end(t, c[0].Fence, commands.Succeeded))
	p.toHub(t)

	m := p.mirror(t, task)
	require.Equal(t, commands.Completed, m.State)
	require.Contains(t, string(m.Result), `"summary": "completed"`)
	require.Zero(t, rows(t, p.hub, `SELECT count(*) FROM outbox WHERE closed_at IS NULL`), "the spoke's answers confirm the order")
	require.Zero(t, rows(t, p.spoke, `SELECT count(*) FROM outbox WHERE closed_at IS NULL`), "the hub's notes confirm the answers")
	require.Zero(t, rows(t, p.spoke, `SELECT count(*) FROM leases`))
	receipts, err := p.hub.db.Receipts(t.Context(), task)
	require.NoError(t, err)
	var kinds []string
	for _, r := range receipts {
		kinds = append(kinds, r.Kind)
	}
	require.Equal(t, []string{"agent.accepted", "agent.started", "agent.result"}, kinds)
}

func TestReportsInAnyOrderAndManyTimesHaveOneEffect(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	task := p.order(t, nil)
	p.toSpoke(t)
	c := p.claim(t, 1)
	p.start(t, c[0])
	p.end(t, c[0].Fence, commands.Succeeded)
	wires := p.spoke.due(t)
	require.Len(t, wires, 3)

	for _, i := range []int{2, 0, 2, 1, 0, 1} {
		_, err := p.hub.db.Ingest(t.Context(), p.hub.read(t, wires[i]))
		require.NoError(t, err)
		require.Equal(t, commands.Completed, p.mirror(t, task).State, "the result came first")
	}

	m := p.mirror(t, task)
	require.NotNil(t, m.AcceptedAt)
	require.NotNil(t, m.StartedAt)
	require.Equal(t, 3, rows(t, p.hub, `SELECT count(*) FROM inbox`))
}

func TestACommandManyTimesHasOneEffect(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.order(t, nil)
	wire := p.hub.due(t)[0]

	first, err := p.spoke.db.Intake(t.Context(), p.spoke.read(t, wire, wire))
	require.NoError(t, err)
	require.Empty(t, first.Again, "the answer is on its way with this very transaction")
	for range 10 {
		again, err := p.spoke.db.Intake(t.Context(), p.spoke.read(t, wire))
		require.NoError(t, err)
		require.Len(t, again.Again, 1, "the stored receipt goes out again")
	}

	require.Equal(t, 1, rows(t, p.spoke, `SELECT count(*) FROM tasks`))
	require.Len(t, p.spoke.due(t), 1)
}

func TestAStaleFenceChangesNothing(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	task := p.order(t, func(o *store.SpawnOrder) { o.Spawn.MaxRetries = 1 })
	p.toSpoke(t)
	first := p.claim(t, 1)[0]
	p.start(t, first)
	require.True(t, p.end(t, first.Fence, commands.Interrupted))
	_, err := p.spoke.db.Sweep(t.Context(), time.Second)
	require.NoError(t, err)
	second := p.claim(t, 1)[0]
	require.Equal(t, "reclaim", second.Type)
	require.Equal(t, 2, second.Fence.Attempt)

	held, err := p.spoke.db.Record(t.Context(), []store.Progress{{Start: &store.Start{Fence: first.Fence}}})
	require.NoError(t, err)
	renewed, err := p.spoke.db.Renew(t.Context(), []store.Fence{first.Fence, second.Fence}, time.Minute)
	require.NoError(t, err)

	require.Equal(t, []bool{false}, held)
	require.False(t, p.end(t, first.Fence, commands.Succeeded))
	require.Equal(t, map[store.Fence]bool{second.Fence: true}, renewed)
	require.Equal(t, 1, rows(t, p.spoke, `SELECT count(*) FROM tasks WHERE id = $1 AND state = 'claimed'`, task))
}

func TestFailureIsRetriedUntilItsRetriesAreSpent(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	task := p.order(t, func(o *store.SpawnOrder) { o.Spawn.MaxRetries = 1 })
	p.toSpoke(t)
	c := p.claim(t, 1)[0]
	p.start(t, c)
	p.end(t, c.Fence, commands.AttemptFailed)
	p.toHub(t)
	require.Equal(t, commands.Queued, p.mirror(t, task).State)
	require.Empty(t, p.claim(t, 1), "it waits for its back-off")
	require.Equal(t, 1, rows(t, p.spoke, `SELECT count(*) FROM due`))
	require.NoError(t, store.ExecForTest(p.spoke.db, `UPDATE due SET at = clock_timestamp()`))
	_, err := p.spoke.db.Sweep(t.Context(), time.Second)
	require.NoError(t, err)
	c = p.claim(t, 1)[0]
	p.start(t, c)
	p.end(t, c.Fence, commands.AttemptFailed)
	p.toHub(t)

	m := p.mirror(t, task)
	require.Equal(t, commands.Failed, m.State)
	require.Equal(t, commands.RetriesExhausted, m.Reason)
	require.Equal(t, 2, m.Attempt)
}

func TestKill(t *testing.T) {
	t.Parallel()
	kill := func(t *testing.T, p *pair, task string) store.Taken {
		_, err := p.hub.db.OrderKill(t.Context(), commands.Kill{Task: task, Reason: "enough", GraceMS: 1000}, time.Hour, "test")
		require.NoError(t, err)
		taken := p.toSpoke(t)
		return taken[len(taken)-1]
	}
	t.Run("of a queued task ends it at once", func(t *testing.T) {
		t.Parallel()
		p := newPair(t)
		task := p.order(t, nil)
		p.toSpoke(t)

		kill(t, p, task)
		p.toHub(t)

		require.Equal(t, commands.Cancelled, p.mirror(t, task).State)
		require.Empty(t, p.claim(t, 1))
	})
	t.Run("of a running task revokes the lease first", func(t *testing.T) {
		t.Parallel()
		p := newPair(t)
		task := p.order(t, nil)
		p.toSpoke(t)
		c := p.claim(t, 1)[0]
		p.start(t, c)

		got := kill(t, p, task)

		require.Equal(t, &store.KillRun{Fence: store.Fence{Task: task, Attempt: 1, Epoch: c.Fence.Epoch + 1}, Grace: time.Second}, got.Kill)
		require.False(t, p.end(t, c.Fence, commands.Succeeded), "the worker's fence is stale")
		again, ok, err := p.spoke.db.PendingKill(t.Context(), task)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, *got.Kill, again, "a restarted spoke finds it")
		require.True(t, p.end(t, got.Kill.Fence, commands.AttemptKilled))
		p.toHub(t)
		require.Equal(t, commands.KillRequested, p.mirror(t, task).Reason)
		require.Equal(t, 1, rows(t, p.hub, `SELECT count(*) FROM inbox WHERE kind = 'agent.killed'`))
	})
	t.Run("before its spawn leaves a tombstone", func(t *testing.T) {
		t.Parallel()
		p := newPair(t)
		task := p.order(t, nil)
		spawn := p.hub.due(t)[0]

		kill(t, p, task)
		_, err := p.spoke.db.Intake(t.Context(), p.spoke.read(t, spawn))
		require.NoError(t, err)
		p.toHub(t)

		require.Zero(t, rows(t, p.spoke, `SELECT count(*) FROM tasks`))
		require.Equal(t, commands.Cancelled, p.mirror(t, task).State)
	})
	t.Run("of an ended task returns the outcome", func(t *testing.T) {
		t.Parallel()
		p := newPair(t)
		task := p.order(t, nil)
		p.toSpoke(t)
		c := p.claim(t, 1)[0]
		p.start(t, c)
		p.end(t, c.Fence, commands.Succeeded) // the hub does not know yet

		got := kill(t, p, task)
		p.toHub(t)

		require.Nil(t, got.Kill)
		require.Equal(t, commands.Completed, p.mirror(t, task).State)
		require.Equal(t, 1, rows(t, p.hub, `SELECT count(*) FROM inbox WHERE kind = 'agent.killed'`))
	})
}

func TestTheCursorSendsOnceAndAgainWhatIsNotConfirmed(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	conns := []string{p.hub.conn.ID}
	for range 3 {
		p.order(t, nil)
	}

	first, err := p.hub.out.Next(t.Context(), conns, 2)
	require.NoError(t, err)
	second, err := p.hub.out.Next(t.Context(), conns, 2)
	require.NoError(t, err)
	p.hub.out.Back(second)
	third, err := p.hub.out.Next(t.Context(), conns, 2)
	require.NoError(t, err)
	soon, err := p.hub.out.Again(t.Context(), conns, 10)
	require.NoError(t, err)
	fresh, err := p.hub.db.NewCursor().Next(t.Context(), conns, 10)
	require.NoError(t, err)

	require.Equal(t, []int64{1, 2}, []int64{first[0].Seq, first[1].Seq})
	require.Equal(t, second, third, "what could not be sent comes again")
	require.Empty(t, soon, "nothing is overdue yet")
	require.Len(t, fresh, 3, "a restart sends everything that is open")
	require.NoError(t, store.ExecForTest(p.hub.db, `UPDATE outbox SET created_at = created_at - interval '1 hour'`))
	store.OverdueForTest(p.hub.out, p.hub.conn.ID)
	late, err := p.hub.out.Again(t.Context(), conns, 10)
	require.NoError(t, err)
	require.Len(t, late, 3)
	require.NotEqual(t, first[0].ID, late[0].ID, "the message server must not take the copy for a repetition")
	require.Equal(t, first[0].Wire, late[0].Wire)
}

// A message whose data the database will never take must not hold up the others.
func TestAPoisonousMessageIsBuriedAlone(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	for range 5 {
		p.order(t, nil)
	}
	batch := p.spoke.read(t, p.hub.due(t)...)
	batch[2].Body.(*commands.Spawn).Title = "a\x00b"

	got, err := p.spoke.db.Intake(t.Context(), batch)

	require.NoError(t, err)
	require.Equal(t, commands.Internal, got.Each[2].Code)
	require.Equal(t, 4, rows(t, p.spoke, `SELECT count(*) FROM tasks`))
	require.Equal(t, 1, rows(t, p.spoke, `SELECT count(*) FROM audit WHERE action = 'message.poisonous' AND message = $1`, batch[2].Header.ID))
	require.Len(t, p.claim(t, 10), 4)
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	first := p.order(t, func(o *store.SpawnOrder) { o.IdempotencyKey = "k" })
	again := p.order(t, func(o *store.SpawnOrder) { o.IdempotencyKey = "k" })
	require.Equal(t, first, again)

	other := store.SpawnOrder{Conn: p.hub.conn.ID, Life: time.Hour, Actor: "test", IdempotencyKey: "k",
		Spawn: &commands.Spawn{Task: newTask(), Runtime: commands.RuntimeExec, Argv: []string{"false"}}}
	out, err := p.hub.db.OrderSpawns(t.Context(), []store.SpawnOrder{other})

	require.NoError(t, err)
	require.Equal(t, commands.Idempotency, out[0].Err.Code)
	require.Equal(t, 1, rows(t, p.hub, `SELECT count(*) FROM mirrors`))
}

func TestExpiredTasksAreNeverStarted(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	task := p.order(t, func(o *store.SpawnOrder) { o.Life = time.Hour })
	p.toSpoke(t)
	require.NoError(t, store.ExecForTest(p.spoke.db, `UPDATE ready SET expires_at = clock_timestamp()`))

	require.Empty(t, p.claim(t, 1))
	swept, err := p.spoke.db.Sweep(t.Context(), time.Second)
	require.NoError(t, err)
	p.toHub(t)

	require.Equal(t, 1, swept.Expired)
	m := p.mirror(t, task)
	require.Equal(t, commands.Expired, m.State)
	require.Equal(t, commands.CommandExpired, m.Reason)
}

func TestNoTwoClaimersGetTheSameTask(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	const tasks, claimers = 200, 8
	for i := range tasks {
		p.order(t, func(o *store.SpawnOrder) { o.Spawn.Priority = i % 3 })
	}
	p.toSpoke(t)
	got := make(chan string, 2*tasks)
	done := make(chan error, claimers)
	for w := range claimers {
		go func() {
			for {
				list, err := p.spoke.db.Claim(t.Context(), store.ClaimTerms{Owner: fmt.Sprint(w), Limit: 3, Lease: time.Minute})
				if err != nil || len(list) == 0 {
					done <- err
					return
				}
				for _, c := range list {
					got <- c.Fence.Task
				}
			}
		}()
	}
	for range claimers {
		require.NoError(t, <-done)
	}
	close(got)

	seen := map[string]bool{}
	for task := range got {
		require.False(t, seen[task], "claimed twice")
		seen[task] = true
	}
	for len(seen) < tasks { // SKIP LOCKED may let the last claimers leave early
		list := p.claim(t, 50)
		require.NotEmpty(t, list)
		for _, c := range list {
			require.False(t, seen[c.Fence.Task], "claimed twice")
			seen[c.Fence.Task] = true
		}
	}
}

func TestClaimOrderAndCapabilities(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	low := p.order(t, nil)
	gpu := p.order(t, func(o *store.SpawnOrder) { o.Spawn.Priority, o.Spawn.Capabilities = 50, []string{"gpu", "go"} })
	high := p.order(t, func(o *store.SpawnOrder) { o.Spawn.Priority = 10 })
	p.toSpoke(t)

	plain := p.claim(t, 10)
	able, err := p.spoke.db.Claim(t.Context(), store.ClaimTerms{Owner: "w", Capabilities: []string{"go", "gpu", "x"}, Limit: 10, Lease: time.Minute})
	require.NoError(t, err)

	require.Len(t, plain, 2)
	require.Equal(t, []string{high, low}, []string{plain[0].Fence.Task, plain[1].Fence.Task})
	require.Len(t, able, 1)
	require.Equal(t, gpu, able[0].Fence.Task)
}

func TestTerminalStatesAreFinalInTheDatabase(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.order(t, nil)
	p.toSpoke(t)
	c := p.claim(t, 1)[0]
	p.start(t, c)
	p.end(t, c.Fence, commands.AttemptFailed)
	p.toHub(t)

	for _, sql := range []string{
		`UPDATE tasks SET state = 'queued', ended_at = NULL`,
		`UPDATE tasks SET state = 'completed'`,
		`UPDATE audit SET why = ''`,
		`DELETE FROM audit`,
	} {
		require.Error(t, store.ExecForTest(p.spoke.db, sql), sql)
	}
	require.Error(t, store.ExecForTest(p.hub.db, `UPDATE mirrors SET state = 'running', ended_at = NULL`))
	require.NoError(t, store.ExecForTest(p.spoke.db, `UPDATE tasks SET state = 'queued', ended_at = NULL, replays = 1`), "an operator's retry is counted")
}

func TestConnectionStatesDecideInTheTransaction(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		state       store.ConnState
		spawn, kill signing.Code
	}{
		"suspended": {store.Suspended, signing.ConnState, ""},
		"revoked":   {store.Revoked, signing.ConnState, signing.ConnState},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			task := p.order(t, nil)
			_, err := p.hub.db.OrderKill(t.Context(), commands.Kill{Task: task, Reason: "x"}, time.Hour, "test")
			require.NoError(t, err)
			_, err = p.spoke.db.SetConnectionState(t.Context(), p.spoke.conn.ID, tt.state, "test", "test")
			require.NoError(t, err)

			taken := p.toSpoke(t)

			require.Equal(t, tt.spawn, taken[0].Code)
			require.Equal(t, tt.kill, taken[1].Code)
			require.Zero(t, rows(t, p.spoke, `SELECT count(*) FROM tasks`))
			require.Equal(t, 1, rows(t, p.spoke, `SELECT count(*) FROM audit WHERE action = 'message.refused' AND code = 'CONN_STATE' AND message = $1`,
				p.mirror(t, task).Command))
		})
	}
}

func TestRevokedIsFinal(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	_, err := p.hub.db.SetConnectionState(t.Context(), p.hub.conn.ID, store.Revoked, "gone", "test")
	require.NoError(t, err)

	_, err = p.hub.db.SetConnectionState(t.Context(), p.hub.conn.ID, store.Active, "back", "test")

	require.Equal(t, commands.Conflict, commands.CodeOf(err))
	require.Error(t, store.ExecForTest(p.hub.db, `UPDATE connections SET state = 'active'`))
	out, err := p.hub.db.OrderSpawns(t.Context(), []store.SpawnOrder{{Conn: p.hub.conn.ID, Life: time.Hour, Spawn: &commands.Spawn{Task: newTask()}}})
	require.NoError(t, err)
	require.Equal(t, signing.ConnState, out[0].Err.Code)
}

func TestInvitesAreUsedUpOnce(t *testing.T) {
	t.Parallel()
	hub := newSide(t, 1, 2)
	id := newTask()
	_, err := hub.db.AddInvite(t.Context(), store.Invite{ID: id, Name: "attic", ProofKey: []byte("k"), TTL: time.Minute, Uses: 1, Actor: "test"})
	require.NoError(t, err)
	errs := make(chan error, 10)

	for i := range 10 {
		go func() {
			peer, key := signer(t, byte(100+i)), signer(t, byte(150+i))
			_, err := hub.db.AddConnection(t.Context(), store.NewConnection{Invite: id, Grant: allTerms, Actor: "test",
				Connection: store.Connection{ID: newTask(), Peer: signing.InstanceIDOf(peer.Public()), Name: "attic", Authority: store.Commands,
					State: store.Pending, LinkKey: fmt.Sprint("U", i)},
				Keys: store.PeerKeys{Identity: peer.Public(), Signing: key.Public(), Sealing: bytes.Repeat([]byte{byte(i)}, 32)}})
			errs <- err
		}()
	}

	won := 0
	for range 10 {
		if err := <-errs; err == nil {
			won++
		} else {
			require.Contains(t, []commands.Code{commands.NotFound, commands.Conflict}, commands.CodeOf(err), "%v", err)
		}
	}
	require.Equal(t, 1, won)
}

func TestTheDatabaseBelongsToOneInstance(t *testing.T) {
	t.Parallel()
	s := newSide(t, 1, 2)
	_, err := store.Open(t.Context(), store.Config{URL: s.url, Self: signing.InstanceIDOf(signer(t, 9).Public()), Signer: s.sign})
	require.ErrorContains(t, err, "belongs to instance "+string(s.self()))
}

func TestADatabaseThatForgetsIsRefused(t *testing.T) {
	t.Parallel()
	s := newSide(t, 1, 2)
	for _, name := range []string{"synchronous_commit"} {
		_, err := store.Open(t.Context(), store.Config{URL: s.url + " options='-c " + name + "=off'", Self: s.self(), Signer: s.sign})
		require.ErrorContains(t, err, name+"=off")
	}
}

func TestGroupAnswersEveryCaller(t *testing.T) {
	t.Parallel()
	var rounds int
	g := store.NewGroup(func(_ context.Context, in []int) ([]int, error) {
		rounds++
		out := make([]int, len(in))
		for i, x := range in {
			out[i] = 2 * x
		}
		time.Sleep(time.Millisecond) // a commit takes time: that is what makes a group
		return out, nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- g.Run(ctx) }()
	answers := make(chan bool, 500)
	for i := range 500 {
		go func() {
			got, err := g.Submit(ctx, i)
			answers <- err == nil && got == 2*i
		}()
	}
	for range 500 {
		require.True(t, <-answers)
	}
	stop()
	require.NoError(t, <-ended)
	require.Less(t, rounds, 250)
}
