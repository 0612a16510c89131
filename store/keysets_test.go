package store_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// keySets is a pair whose spoke takes what the hub says about its keys.
type keySets struct {
	*storetest.Pair
	seq int64
}

func (p *keySets) take(t testing.TB, envelope []byte) *store.Incoming {
	t.Helper()
	v, err := p.Spoke.DB.KeysOf(t.Context(), p.Spoke.Conn)
	require.NoError(t, err)
	p.Spoke.Verifier = v.Verifier
	m := p.Spoke.Read(t, envelope)[0]
	_, err = p.Spoke.DB.TakeIn(t.Context(), p.Spoke.Conn.ID, 20, []*store.Incoming{m}, func(ctx context.Context, tx *store.Tx, from store.Standing, fresh []*store.Incoming) error {
		for _, f := range fresh {
			if f.Header.Kind != string(commands.KeySetKind) {
				continue
			}
			if err := store.TakeKeySet(ctx, tx, from, f); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, err)
	return m
}

// say is a message of the hub under these signatures.
func (p *keySets) say(t testing.TB, body commands.Body, first *signing.Signer, also ...*signing.Signer) []byte {
	t.Helper()
	raw, err := signing.EncodeBody(body)
	require.NoError(t, err)
	p.seq++
	now := time.Now()
	s, err := first.Seal(body.Kind().Type(), signing.Header{ID: storetest.NewID(), Kind: string(body.Kind()), Iss: p.Hub.Self(), Aud: p.Spoke.Self(), Conn: p.Hub.Conn.ID,
		Epoch: 1, Seq: p.seq, Iat: now.UnixMilli(), Exp: now.Add(time.Hour).UnixMilli(), Wsp: store.Workspace}, raw, also...)
	require.NoError(t, err)
	return s.Envelope
}

func TestKeySetsThatAreRefused(t *testing.T) {
	t.Parallel()
	next, other := storetest.Signer(t, 30), storetest.Signer(t, 31)
	set := func(version int64, keys ...*signing.Signer) *commands.KeySet {
		s := &commands.KeySet{Version: version}
		for i, k := range keys {
			s.Keys = append(s.Keys, commands.SetKey{Pub: k.Public(), ForMS: int64(i) * 60_000})
		}
		return s
	}
	type hub struct{ identity, signing *signing.Signer }
	tests := map[string]struct {
		say  func(t *testing.T, p *keySets, h hub) []byte
		want signing.Code
	}{
		"a newer one of both keys":                    {func(t *testing.T, p *keySets, h hub) []byte { return p.say(t, set(6, other, next), next, h.identity) }, ""},
		"an older version":                            {func(t *testing.T, p *keySets, h hub) []byte { return p.say(t, set(4, other, next), next, h.identity) }, signing.KeySetVersion},
		"the same version with other keys":            {func(t *testing.T, p *keySets, h hub) []byte { return p.say(t, set(5, other, next), next, h.identity) }, signing.KeySetVersion},
		"of the identity key alone, revoking nothing": {func(t *testing.T, p *keySets, h hub) []byte { return p.say(t, set(6, other, next), h.identity) }, signing.KeySetSigner},
		"another peer's key": {func(t *testing.T, p *keySets, h hub) []byte {
			return p.say(t, set(6, storetest.Signer(t, 8), next), next, h.identity)
		}, signing.KeyDuplicate},
		"signed with a key that has ended": {func(t *testing.T, p *keySets, h hub) []byte {
			return p.say(t, set(6, other, next), h.signing, h.identity)
		}, signing.KeyWindow},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &keySets{Pair: storetest.NewPair(t)}
			h := hub{p.Hub.Identity, p.Hub.Signing}
			p.Spoke.Meet(t, store.Commands) // holds signer 8
			p.Spoke.Conn = p.Hub.Conn
			require.Empty(t, p.take(t, p.say(t, set(5, next), h.signing, h.identity)).Code)
			before := p.Spoke.Count(t, `SELECT count(*) FROM keys WHERE not_after = 'infinity' AND pub = $1`, []byte(next.Public()))

			m := p.take(t, tt.say(t, p, h))

			require.Equal(t, tt.want, m.Code, m.Why)
			require.Equal(t, 1, before)
			if tt.want != "" {
				require.Equal(t, 1, p.Spoke.Count(t, `SELECT count(*) FROM keys WHERE not_after = 'infinity' AND pub = $1`, []byte(next.Public())), "the set in force stays")
			}
		})
	}
}

func TestAKeySetIsTakenOnce(t *testing.T) {
	t.Parallel()
	p := &keySets{Pair: storetest.NewPair(t)}
	require.NoError(t, p.Hub.DB.ChangeKey(t.Context(), store.KeyChange{OverlapMS: 60_000, Actor: "test"}))
	_, _, err := p.Hub.DB.TendKeys(t.Context())
	require.NoError(t, err)
	envelopes := p.Hub.Due(t)
	require.Len(t, envelopes, 1)

	first, again := p.take(t, envelopes[0]), p.take(t, envelopes[0])

	require.Empty(t, first.Code)
	require.Equal(t, signing.ReplaySame, again.Code)
	require.Equal(t, 1, p.Spoke.Count(t, `SELECT count(*) FROM audit WHERE action = 'keys.changed'`))
	require.Equal(t, 1, p.Spoke.Count(t, `SELECT count(*) FROM keys WHERE use = 'signing' AND not_after BETWEEN clock_timestamp() AND clock_timestamp() + interval '61 s'`), "the old key has its time")
	require.NotContains(t, p.take(t, p.say(t, &commands.Status{Task: storetest.NewID()}, p.Hub.Signing)).Code, "KEY_", "and verifies meanwhile")
}

// The spoke takes the key set before an order that the revoked key has signed.
func TestWhatARevokedKeySignedIsSealedAgain(t *testing.T) {
	t.Parallel()
	p := &keySets{Pair: storetest.NewPair(t)}
	task := p.Order(t, nil)
	require.NoError(t, p.Hub.DB.ChangeKey(t.Context(), store.KeyChange{Revoke: "current", Reason: "copied", Actor: "test"}))
	_, _, err := p.Hub.DB.TendKeys(t.Context())
	require.NoError(t, err)
	envelopes := p.Hub.Due(t)
	require.Len(t, envelopes, 2)
	require.Empty(t, p.take(t, envelopes[1]).Code)
	require.Equal(t, signing.KeyRevoked, p.take(t, envelopes[0]).Code)
	early, _, err := p.Hub.DB.TendKeys(t.Context())
	require.NoError(t, err)
	require.Empty(t, early, "the set is not confirmed yet")
	require.NoError(t, p.Hub.DB.Confirm(t.Context(), p.Hub.Peer, commands.Numbers{Through: 2, Gaps: []commands.Range{{From: 1, To: 1}}}))

	done, _, err := p.Hub.DB.TendKeys(t.Context())

	require.NoError(t, err)
	require.Len(t, done, 1)
	require.True(t, done[0].Resend)
	p.Hub.Out.Rewind()
	envelopes = p.Hub.Due(t)
	require.Len(t, envelopes, 1)
	m := p.take(t, envelopes[0])
	require.Empty(t, m.Code, m.Why)
	require.Equal(t, done[0].Signs, m.Header.Kid)
	require.Equal(t, task, m.Body.TaskID())
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM mirrors WHERE encode(command_digest, 'hex') = $1`, m.Re().SHA256), "answers name its body, which stays")
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM own_keys WHERE removed_at IS NOT NULL`), "nothing needs the old key")
}

// A key set whose number the spoke knows for another message, because the hub was
// restored from a backup, is sealed again, with both signatures.
func TestAKeySetThatGetsANewNumberIsTaken(t *testing.T) {
	t.Parallel()
	p := &keySets{Pair: storetest.NewPair(t)}
	require.NoError(t, p.Hub.DB.ChangeKey(t.Context(), store.KeyChange{OverlapMS: 60_000, Actor: "test"}))
	_, _, err := p.Hub.DB.TendKeys(t.Context())
	require.NoError(t, err)
	other := commands.Numbering{Stored: commands.Numbers{Through: 2}, Held: []commands.Held{{Seq: 1, SHA256: strings.Repeat("0", 64)}}}

	did, err := p.Hub.DB.Compare(t.Context(), p.Hub.Peer, other, 0, 20)

	require.NoError(t, err)
	require.Equal(t, 1, did.Renumbered, did.Differs)
	p.Hub.Out.Rewind()
	envelopes := p.Hub.Due(t)
	require.Len(t, envelopes, 1)
	m := p.take(t, envelopes[0])
	require.Empty(t, m.Code, m.Why)
	require.Equal(t, did.Base+1, m.Header.Seq)
	require.Equal(t, 1, p.Spoke.Count(t, `SELECT count(*) FROM audit WHERE action = 'keys.changed'`))
}

func TestAnOldKeyDoesNotLiveLongerForBeingNamedAgain(t *testing.T) {
	t.Parallel()
	p := &keySets{Pair: storetest.NewPair(t)}
	next, other, old := storetest.Signer(t, 30), storetest.Signer(t, 31), p.Hub.Signing
	name := func(version int64, current *signing.Signer, overlap int64) *commands.KeySet {
		return &commands.KeySet{Version: version, Keys: []commands.SetKey{{Pub: current.Public()}, {Pub: old.Public(), ForMS: overlap}}}
	}
	require.Empty(t, p.take(t, p.say(t, name(2, next, 60_000), old, p.Hub.Identity)).Code)

	m := p.take(t, p.say(t, name(3, other, 3_600_000), old, p.Hub.Identity))

	require.Empty(t, m.Code, m.Why)
	require.Equal(t, 1, p.Spoke.Count(t, `SELECT count(*) FROM keys WHERE pub = $1 AND not_after < clock_timestamp() + interval '61 s'`, []byte(old.Public())))
	require.Equal(t, 1, p.Spoke.Count(t, `SELECT count(*) FROM keys WHERE pub = $1 AND not_after <= clock_timestamp()`, []byte(next.Public())), "what is not named has ended")
}

// A peer says which of our key sets it has refused, while that is the newest one.
func TestTheRefusalOfAKeySetIsTold(t *testing.T) {
	t.Parallel()
	p := &keySets{Pair: storetest.NewPair(t)}
	next := storetest.Signer(t, 30)
	set := &commands.KeySet{Version: 5, Keys: []commands.SetKey{{Pub: next.Public()}}}
	refused := func() []commands.RefusedReport {
		list, err := p.Spoke.DB.RefusedOf(t.Context(), p.Spoke.Conn.ID)
		require.NoError(t, err)
		return list
	}

	require.Equal(t, signing.KeySetSigner, p.take(t, p.say(t, set, p.Hub.Identity)).Code)

	require.Equal(t, []commands.RefusedReport{{Seq: p.seq, Code: signing.KeySetSigner}}, refused())
	require.Empty(t, p.take(t, p.say(t, set, p.Hub.Signing, p.Hub.Identity)).Code)
	require.Empty(t, refused())
}

// A peer that was restored to before a rotation is told the key by the identity key alone, where no message is left that tells it. That ends
// no key that still counts.
func TestTheIdentityKeyTellsAKeyThatAPeerHasLost(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"the message is gone": `DELETE FROM outbox`,
		"its time has passed": `UPDATE outbox SET exp = clock_timestamp()`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &keySets{Pair: storetest.NewPair(t)}
			tend := func() (keys string) {
				done, _, err := p.Hub.DB.TendKeys(t.Context())
				require.NoError(t, err)
				for _, d := range done {
					keys += string(d.Signs)
				}
				return keys
			}
			require.NoError(t, p.Hub.DB.ChangeKey(t.Context(), store.KeyChange{}))
			require.Empty(t, tend())
			require.NoError(t, p.Hub.DB.Confirm(t.Context(), p.Hub.Peer, commands.Numbers{Through: 1}))
			signs := tend()
			require.NotEmpty(t, signs)
			require.NoError(t, p.Hub.Exec(change))
			p.Hub.Out.Rewind()

			did, err := p.Hub.DB.Compare(t.Context(), p.Hub.Peer, commands.Numbering{Recall: 1}, 0, 20)

			require.NoError(t, err)
			require.True(t, did.KeyLost)
			require.Empty(t, tend())
			envelopes := p.Hub.Due(t)
			require.Len(t, envelopes, 1)
			m := p.take(t, envelopes[0])
			require.Empty(t, m.Code, m.Why)
			require.Equal(t, p.Hub.Identity.KeyID(), m.Header.Kid)
			set := m.Body.(*commands.KeySet)
			require.Len(t, set.Revoked, 1)
			require.Zero(t, p.Hub.Count(t, `SELECT count(*) FROM own_keys WHERE kid = $1`, set.Revoked[0]))
			require.Equal(t, 2, p.Spoke.Count(t, `SELECT count(*) FROM keys WHERE use = 'signing' AND not_after > clock_timestamp() AND revoked_at IS NULL`), "the old one has its time")
			require.Equal(t, 1, p.Spoke.Count(t, `SELECT count(*) FROM keys WHERE use = 'signing' AND not_after = 'infinity' AND kid = $1`, signs))
		})
	}
}

// After a change of keys each comparison looks for key sets: among them alone, however many messages there are, also where that was
// planned when there were none.
func TestKeySetsAreNotLookedForAmongAllMessages(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	require.NoError(t, p.Hub.DB.ChangeKey(t.Context(), store.KeyChange{}))
	_, _, err := p.Hub.DB.TendKeys(t.Context())
	require.NoError(t, err)
	conn := owner(t, pgtest.Admin(p.Hub.URL))
	exec := func(sql string) {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	exec(`SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET plan_cache_mode = force_generic_plan`)
	exec(`PREPARE lost AS ` + store.KeyLostForTest)
	exec(`PREPARE next AS ` + store.LostKeySetForTest)
	kid := ask[string](t, conn, `SELECT kid FROM own_keys ORDER BY made_at DESC LIMIT 1`)
	looks := map[string]string{"lost": literals(t, []any{p.Hub.Conn.ID, "{}", "f", kid}), "next": literals(t, []any{p.Hub.Conn.ID, "{}"})}
	for name, args := range looks {
		exec(`EXECUTE ` + name + args)
	}
	exec(`INSERT INTO outbox (id, conn, seq, queue, kind, digest, exp, envelope)
		SELECT gen_random_uuid(), id, n, 'run', 'agent.spawn', '', now() + interval '1 day', '' FROM connections, generate_series(1000, 20000) AS n`)
	for _, planned := range []string{"before", "after"} {
		for name, args := range looks {
			plan := ask[string](t, conn, `EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE `+name+args)

			require.Contains(t, plan, "outbox", name)
			require.Less(t, rowsRead(t, []byte(plan)), 20.0, "planned %s: %s", planned, plan)
		}
		exec(`ANALYZE outbox`) // they are planned anew
	}
}
