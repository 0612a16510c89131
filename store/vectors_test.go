package store_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/scale"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// envelopeVectors is the file that also says in signing what each envelope is.
type envelopeVectors struct {
	Connection string
	Epoch      int64
	Self       signing.InstanceID
	NowMS      int64 `json:"now_ms"`
	Keys       []vectorKey
	Cases      []vectorCase
}

type vectorKey struct {
	Iss       signing.InstanceID
	Kid       signing.KeyID
	PubHex    string `json:"pub_hex"`
	NotBefore int64  `json:"not_before"`
	NotAfter  int64  `json:"not_after"`
	RevokedAt int64  `json:"revoked_at"`
}

type vectorCase struct {
	Name, Expect string
	WireB64      string `json:"wire_b64"`
	NowMS        int64  `json:"now_ms"`
	State        string `json:"connection_state"`
	Seen         bool   `json:"seen_valid_first"`
}

func (c vectorCase) wire(t *testing.T) []byte {
	t.Helper()
	if strings.HasPrefix(c.WireB64, "(generate") {
		return bytes.Repeat([]byte(" "), 300<<10)
	}
	envelope, err := base64.StdEncoding.DecodeString(c.WireB64)
	require.NoError(t, err)
	return envelope
}

// receiver is the database of the vectors' receiver, as it is at the vector's
// moment: what lies an hour ahead of that moment lies an hour ahead of now.
type receiver struct {
	*storetest.Side
	open signing.Verifier
	now  time.Time // the vector's moment
	conn string
}

func newReceiver(t *testing.T, f envelopeVectors, c vectorCase) *receiver {
	t.Helper()
	db, err := store.Open(t.Context(), store.Config{URL: pgtest.URL(t), Self: f.Self, Signer: storetest.Signer(t, 42), PoolSize: 3})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	r := &receiver{Side: &storetest.Side{DB: db}, now: time.UnixMilli(f.NowMS), conn: f.Connection}
	if c.NowMS != 0 {
		r.now = time.UnixMilli(c.NowMS)
	}
	state := store.Active
	if c.State != "" {
		state = store.ConnState(strings.ToLower(c.State))
	}
	exec := func(sql string, args ...any) { require.NoError(t, r.Exec(sql, args...)) }
	exec(`INSERT INTO connections (id, peer, peer_name, authority, state, epoch, link_key) VALUES ($1, $2, 'lab', 'obeys', $3, $4, 'U')`,
		f.Connection, f.Keys[0].Iss, state, f.Epoch)
	exec(`INSERT INTO sequences (conn, kid) VALUES ($1, 'none')`, f.Connection)
	exec(`INSERT INTO grants (conn, kinds, runtimes) VALUES ($1, '{}', '{}')`, f.Connection)
	for _, k := range f.Keys {
		r.addKey(t, f, k)
	}
	r.open, err = db.Verifier(t.Context(), store.Connection{ID: f.Connection, Epoch: f.Epoch})
	require.NoError(t, err)
	return r
}

func (r *receiver) addKey(t *testing.T, f envelopeVectors, k vectorKey) {
	t.Helper()
	pub, err := hex.DecodeString(k.PubHex)
	require.NoError(t, err)
	fromNow := func(ms int64) time.Duration { return time.UnixMilli(ms).Sub(r.now) }
	var revoked *time.Duration
	if k.RevokedAt != 0 {
		d := fromNow(k.RevokedAt)
		revoked = &d
	}
	err = r.Exec(`INSERT INTO keys (conn, kid, owner, use, pub, not_before, not_after, revoked_at)
		VALUES ($1, $2, $3, 'signing', $4, clock_timestamp() + $5::interval, clock_timestamp() + $6::interval, clock_timestamp() + $7::interval)`,
		f.Connection, k.Kid, k.Iss, pub, fromNow(k.NotBefore), fromNow(k.NotAfter), revoked)
	if len(pub) != 32 {
		require.Error(t, err, "a key of %d bytes never gets as far as the table", len(pub))
		return
	}
	require.NoError(t, err)
}

// fate is what becomes of an envelope: the first code that says no, in opening
// it or in the transaction of its effect, or OK.
func (r *receiver) fate(t *testing.T, envelope []byte) string {
	t.Helper()
	o, err := r.open.Open(envelope, r.now)
	if err != nil {
		return string(commands.CodeOf(err))
	}
	// What the bodies ask for is not the matter here: nothing acts on them.
	m := &store.Incoming{Conn: r.conn, Header: o.Header(), Digest: o.Digest(), Envelope: envelope}
	_, err = r.DB.TakeIn(t.Context(), r.conn, 20, []*store.Incoming{m},
		func(context.Context, *store.Tx, store.Standing, []*store.Incoming) error { return nil })
	require.NoError(t, err)
	return cmp.Or(string(m.Code), "OK")
}

// Every envelope of the vectors gets exactly the code that they promise, from
// the rules that a message can be held against and from those that only a
// database can.
func TestEnvelopeVectors(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../signing/testdata/envelope.json")
	require.NoError(t, err)
	var f envelopeVectors
	require.NoError(t, json.Unmarshal(raw, &f))
	require.Len(t, f.Cases, 114)
	valid := f.Cases[0]
	require.Equal(t, "valid command", valid.Name)
	plain := newReceiver(t, f, valid) // for what never gets as far as the database
	deep, seen := map[string]bool{}, map[string]bool{}
	for _, c := range f.Cases {
		seen[c.Expect] = true
		if _, err := plain.open.Open(c.wire(t), plain.now); err == nil || c.NowMS != 0 {
			deep[c.Name] = true
		}
	}
	some := scale.SomeCases(t, 20, deep)
	for _, c := range f.Cases {
		if deep[c.Name] && !some[c.Name] {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			r := plain
			if deep[c.Name] {
				r = newReceiver(t, f, c)
			}
			if c.Seen {
				require.Equal(t, "OK", r.fate(t, valid.wire(t)))
			}
			inbox := r.Count(t, `SELECT count(*) FROM inbox`)

			require.Equal(t, c.Expect, r.fate(t, c.wire(t)))

			stored := r.Count(t, `SELECT count(*) FROM inbox`) - inbox
			require.Equal(t, c.Expect == "OK", stored == 1, "only what was new and in order is kept")
		})
	}
	for _, code := range []signing.Code{signing.ReplaySame, signing.ReplayDiff, signing.SeqReuse, signing.ConnState, signing.KeyWindow, signing.KeyRevoked} {
		require.True(t, seen[string(code)], "no vector for %s", code)
	}
}
