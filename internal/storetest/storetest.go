// Package storetest gives tests the opened databases of instances: alone, or in
// joined pairs without a link, between which the test carries messages by hand.
//
// Its tests are those of store and of federation.
package storetest

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Side is one instance: its database and keys, and its connection when it is
// one of a pair.
type Side struct {
	DB       *store.DB
	URL      string
	Identity *signing.Signer
	Signing  *signing.Signer
	Sealing  *signing.Decrypter
	Conn     store.Connection
	Verifier signing.Verifier
	Peer     store.Speaker // of the connection, with the key that it began with
	Out      *store.Cursor
}

// A Pair is a hub and a spoke joined by hand.
type Pair struct {
	Hub, Spoke *Side
}

// Terms are what a pair's hub may ask for.
var Terms = store.GrantTerms{Kinds: []string{"agent.spawn", "agent.kill", "agent.status", "agent.answer", "agent.pause"}, Runtimes: []string{"exec", "noop"}}

// NewID returns an id for a task or a connection.
func NewID() string { return uuid.Must(uuid.NewV7()).String() }

// Signer returns the signer whose seed is b over and over.
func Signer(t testing.TB, b byte) *signing.Signer {
	t.Helper()
	s, err := signing.NewSigner(bytes.Repeat([]byte{b}, 32))
	require.NoError(t, err)
	return s
}

// URL returns the address of a database that has the schema, and is nobody's.
func URL(t testing.TB) string { return pgtest.Prepared(t, store.Prepare) }

// NewSide returns an instance on a database of its own, with keys from seeds.
func NewSide(t testing.TB, identity, sign byte) *Side {
	t.Helper()
	return OpenSide(t, URL(t), identity, sign, 8)
}

// OpenSide is NewSide on a database that is there, with so many connections.
func OpenSide(t testing.TB, url string, identity, sign byte, pool int) *Side {
	t.Helper()
	s := &Side{URL: url, Identity: Signer(t, identity), Signing: Signer(t, sign), Sealing: Decrypter(t, sign)}
	keys := filepath.Join(t.TempDir(), "keys") // for those that come after the first ones
	_, err := signing.CreateKeys(keys)
	require.NoError(t, err)
	db, err := store.Open(t.Context(), store.Config{URL: s.URL, Self: s.Self(), Signer: s.Signing, Ring: signing.NewRing(keys, s.Identity, s.Signing), Sealing: s.Sealing, PoolSize: pool})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	s.DB = db
	return s
}

// Decrypter returns the holder of the sealing key that is b over and over.
func Decrypter(t testing.TB, b byte) *signing.Decrypter {
	t.Helper()
	key, err := ecdh.X25519().NewPrivateKey(bytes.Repeat([]byte{b}, 32))
	require.NoError(t, err)
	d, err := signing.NewDecrypter(key)
	require.NoError(t, err)
	return d
}

// NewPair returns a hub and a spoke that know each other as lab and attic.
func NewPair(t testing.TB) *Pair {
	t.Helper()
	p := &Pair{Hub: NewSide(t, 1, 2), Spoke: NewSide(t, 3, 4)}
	p.join(t, "attic")
	return p
}

// Another returns p's hub with one more spoke, cellar.
func (p *Pair) Another(t testing.TB) *Pair {
	t.Helper()
	hub := *p.Hub
	q := &Pair{Hub: &hub, Spoke: NewSide(t, 5, 6)}
	q.join(t, "cellar")
	return q
}

func (p *Pair) join(t testing.TB, spoke string) {
	t.Helper()
	conn := NewID()
	p.Hub.join(t, conn, p.Spoke, spoke, store.Commands)
	p.Spoke.join(t, conn, p.Hub, "lab", store.Obeys)
}

// Nowhere says of what a spoke refuses that nobody else can run it.
func Nowhere(*commands.Spawn, store.Refusal) []store.Candidate { return nil }

func (s *Side) join(t testing.TB, conn string, peer *Side, name string, a store.Authority) {
	t.Helper()
	c, err := s.DB.AddConnection(t.Context(), store.NewConnection{
		Connection: store.Connection{ID: conn, Peer: peer.Self(), Name: name, Authority: a, State: store.Active, LinkKey: "U" + name},
		Keys:       store.PeerKeys{Identity: peer.Identity.Public(), Signing: peer.Signing.Public(), Sealing: peer.Sealing.Public()},
		Grant:      Terms, Actor: "test"})
	require.NoError(t, err)
	s.Conn, s.Out, s.Peer = c, s.DB.NewCursor(c.ID), store.Speaker{Conn: c.ID, Key: peer.Signing.KeyID()}
	s.Verifier, err = s.DB.Verifier(t.Context(), c)
	require.NoError(t, err)
}

// Self is the instance's id.
func (s *Side) Self() signing.InstanceID { return signing.InstanceIDOf(s.Identity.Public()) }

// Count asks the database for one number, as the role that every statement of
// the store runs as.
func (s *Side) Count(t testing.TB, sql string, args ...any) int {
	t.Helper()
	n, err := s.TryCount(t.Context(), sql, args...)
	require.NoError(t, err)
	return n
}

// TryCount is Count for goroutines and for what may fail.
func (s *Side) TryCount(ctx context.Context, sql string, args ...any) (n int, err error) {
	err = s.DB.Read(ctx, "counting", func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, sql, args...).Scan(&n)
	})
	return n, err
}

// Exec changes the database behind the store's back.
func (s *Side) Exec(sql string, args ...any) error {
	return s.DB.Tx(context.Background(), "changing the database", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Exec(ctx, sql, args...)
		return err
	})
}

// Read opens messages as a receiving room does.
func (s *Side) Read(t testing.TB, envelopes ...[]byte) []*store.Incoming {
	t.Helper()
	var list []*store.Incoming
	for _, w := range envelopes {
		o, err := s.Verifier.Open(w, time.Now())
		require.NoError(t, err)
		c, err := commands.Parse(o)
		require.NoError(t, err)
		list = append(list, &store.Incoming{Conn: s.Conn.ID, Header: o.Header(), Digest: o.Digest(), Envelope: w, Body: c.Body, Asks: o.Type() == signing.Command})
	}
	return list
}

// Due returns what the outbox holds for the other side and did not hand out yet.
func (s *Side) Due(t testing.TB) [][]byte {
	t.Helper()
	out, err := s.Out.Next(t.Context())
	require.NoError(t, err)
	var envelopes [][]byte
	for _, o := range out {
		envelopes = append(envelopes, o.Envelope)
	}
	return envelopes
}

// Order gives the spawn of an agent that does nothing, as change has it, and
// returns the task.
func (p *Pair) Order(t testing.TB, change func(*store.SpawnOrder)) string {
	t.Helper()
	o := store.SpawnOrder{Conn: p.Hub.Conn.ID, Life: time.Hour, Actor: "test",
		Spawn: &commands.Spawn{Task: NewID(), Runtime: commands.RuntimeExec, Argv: []string{"true"}}}
	if change != nil {
		change(&o)
	}
	out, err := p.Hub.DB.OrderSpawns(t.Context(), []store.SpawnOrder{o})
	require.NoError(t, err)
	require.Nil(t, out[0].Err)
	return out[0].Task
}

// Mirror returns the hub's view of a task.
func (p *Pair) Mirror(t testing.TB, task string) store.Mirror {
	t.Helper()
	list, err := p.Hub.DB.FindMirrors(t.Context(), task)
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0]
}

// A Stand is how a task stands at its spoke.
type Stand struct {
	State   commands.State
	Attempt int
	Epoch   int64
}

// Standing returns how each task stands.
func (s *Side) Standing(t testing.TB) map[string]Stand {
	t.Helper()
	all := map[string]Stand{}
	require.NoError(t, s.DB.Read(t.Context(), "reading how tasks stand", func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, `SELECT id::text, state, attempt, epoch FROM standing`)
		if err != nil {
			return err
		}
		id, now := "", Stand{}
		_, err = pgx.ForEachRow(rows, []any{&id, &now.State, &now.Attempt, &now.Epoch}, func() error { all[id] = now; return nil })
		return err
	}))
	return all
}
