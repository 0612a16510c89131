package hub_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/join"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/store"
)

// requireRefused checks that a caller heard no more than every caller hears,
// and that the hub's audit says exactly what was wrong.
func requireRefused(t *testing.T, m *meshtest.Mesh, end int, err error, why string) {
	t.Helper()
	require.Equal(t, commands.Code("JOIN_REFUSED"), commands.CodeOf(err))
	require.EqualError(t, err, "the hub refuses: join token not accepted")
	require.Contains(t, refusalAfter(t, m, end).Why, why)
}

// refusalAfter waits for the one row about a refused join that comes after end.
func refusalAfter(t *testing.T, m *meshtest.Mesh, end int) store.AuditRow {
	t.Helper()
	var lines []store.AuditRow
	meshtest.Await(t, "the row about a refused join", func() bool {
		lines = m.Hub.Audit(t, end)
		return len(lines) > 0
	})
	require.Len(t, lines, 1)
	require.Equal(t, "join.refused", lines[0].Action)
	return lines[0]
}

func TestTokensThatAreNotAccepted(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	first := m.Newcomer(t, "first")
	spent := m.Token(t, "first", first.Proxy)
	_, err := first.JoinWith(t, spent)
	require.NoError(t, err)
	n := m.Newcomer(t, "second")
	token := m.Token(t, "second", n.Proxy)
	tests := map[string]struct {
		sql   string
		token func() join.Token
		why   string
	}{
		"used before":     {"", func() join.Token { return spent }, "invite was used before"},
		"expired":         {`UPDATE invites SET expires_at = clock_timestamp() WHERE id = $1`, nil, "invite has expired"},
		"revoked":         {`UPDATE invites SET expires_at = 'infinity', revoked_at = clock_timestamp() WHERE id = $1`, nil, "invite was revoked"},
		"of another hub":  {"", func() join.Token { other := token; other.ID = meshtest.NewID(); return other }, "no such invite"},
		"wrong by a byte": {`UPDATE invites SET expires_at = 'infinity', revoked_at = NULL WHERE id = $1`, func() join.Token { return otherSecret(t, token) }, "no proof for the token's secret"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.sql != "" {
				m.Hub.Exec(t, tt.sql, token.ID)
			}
			shown := token
			if tt.token != nil {
				shown = tt.token()
			}
			shown.Address = n.Proxy.Addr()
			before, end := m.Hub.Sums(t), m.Hub.AuditEnd(t)

			_, err := n.JoinWith(t, shown)

			requireRefused(t, m, end, err, tt.why)
			require.Equal(t, before, m.Hub.Sums(t))
			require.Zero(t, n.Count(t, `SELECT count(*) FROM connections`))
		})
	}
	m.Hub.Exec(t, `UPDATE invites SET expires_at = 'infinity', revoked_at = NULL WHERE id = $1`, token.ID)
	meshtest.Await(t, "that nothing of this has used it up", func() bool { // the places of those who left are free in a moment
		_, err = n.JoinWith(t, token)
		return err == nil
	})
}

// otherSecret is the same token with another secret in it.
func otherSecret(t *testing.T, token join.Token) join.Token {
	t.Helper()
	text, err := token.Text()
	require.NoError(t, err)
	other, err := join.ParseToken(text[:strings.LastIndexByte(text, '.')+1] + base64.RawURLEncoding.EncodeToString(make([]byte, 32)))
	require.NoError(t, err)
	return other
}

func TestATokenThatWasNotCopiedWhole(t *testing.T) {
	t.Parallel()
	text := meshtest.Start(t).Invite(t, "attic").Token

	for _, good := range []string{text, text + "\n", "  " + text + "\r\n"} {
		_, err := join.ParseToken(good)
		require.NoError(t, err)
	}
	for cut := range len(text) {
		_, err := join.ParseToken(text[:cut])
		require.ErrorIs(t, err, join.ErrToken, "%d of %d letters", cut, len(text))
	}
}

func TestOneTokenForTenAtOnce(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	token := m.Token(t, "attic", meshtest.NewProxy(t, m.Hub.Link))
	errs := make(chan error, 10)
	end := m.Hub.AuditEnd(t)
	for range cap(errs) {
		n := m.Newcomer(t, "attic")
		db := n.Open(t)
		t.Cleanup(db.Close)
		go func(ctx context.Context) {
			_, err := spoke.Join(ctx, db, n.Keys, token)
			errs <- err
		}(t.Context())
	}

	won := 0
	for range cap(errs) {
		if err := <-errs; err == nil {
			won++
		} else {
			require.EqualError(t, err, "the hub refuses: join token not accepted")
		}
	}

	require.Equal(t, 1, won)
	require.Equal(t, 1, m.Hub.Count(t, `SELECT count(*) FROM connections`))
	require.Equal(t, 1, m.Hub.Count(t, `SELECT count(*) FROM invites WHERE uses_left = 0`))
	meshtest.Await(t, "the reason", func() bool {
		return slices.ContainsFunc(m.Hub.Audit(t, end), func(r store.AuditRow) bool { return strings.Contains(r.Why, "invite was used before") })
	})
}

// A join whose last answer was lost is said again and leads to the same
// connection.
func TestAJoinCanBeRepeated(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	n := m.Newcomer(t, "attic")
	token := m.Token(t, "attic", n.Proxy)
	code, why := stranger{keys: n.Keys}.join(t, m, token)
	require.Empty(t, code, why)
	var first string
	require.NoError(t, m.Hub.SQL.QueryRow(t.Context(), `SELECT id::text FROM connections`).Scan(&first))

	again, err := n.JoinWith(t, token)

	require.NoError(t, err)
	require.Equal(t, first, again.Connection.ID)
	require.Equal(t, 1, m.Hub.Count(t, `SELECT count(*) FROM connections`))
}

func TestAHubThatIsNotTheOneInTheToken(t *testing.T) {
	t.Parallel()
	m, other := meshtest.Start(t), meshtest.Start(t)
	n := m.Newcomer(t, "attic")
	token := m.Token(t, "attic", n.Proxy)
	elsewhere := other.Token(t, "attic", n.Proxy)
	for name, change := range map[string]func(*join.Token){
		"another TLS key":                   func(k *join.Token) { k.Pin = elsewhere.Pin },
		"the TLS key, but another identity": func(k *join.Token) { k.Hub = elsewhere.Hub },
	} {
		t.Run(name, func(t *testing.T) {
			wrong := token
			change(&wrong)
			before, end := m.Hub.Sums(t), m.Hub.AuditEnd(t)

			_, err := n.JoinWith(t, wrong)

			require.Equal(t, commands.Code("PIN_MISMATCH"), commands.CodeOf(err))
			require.ErrorContains(t, err, "hub key differs from the one in the token")
			require.Equal(t, before, m.Hub.Sums(t), "no proof was sent")
			require.Empty(t, m.Hub.Audit(t, end))
			require.Zero(t, n.Count(t, `SELECT count(*) FROM connections`))
		})
	}
}

// A stranger is somebody who joins by hand and changes what is said on the way.
type stranger struct {
	keys  signing.Keys
	hello func(*join.Hello) // may be nil
	prove signing.Keys      // what the proof is made with; zero: keys
	proof func(*join.Proof) // may be nil
}

// join runs the handshake up to where the hub refuses.
func (s stranger) join(t *testing.T, m *meshtest.Mesh, token join.Token) (code commands.Code, why string) {
	t.Helper()
	conn, err := transport.DialJoin(t.Context(), m.Hub.Link, []string{token.Pin}, token.JoinID)
	require.NoError(t, err)
	defer conn.Close()
	link, err := transport.NKey(s.keys.LinkSeed)
	require.NoError(t, err)
	h := join.Hello{Protocols: []string{join.Protocol}, Invite: token.ID, Identity: s.keys.Identity.Public(), Signing: s.keys.Signing.Public(),
		Sealing: s.keys.Sealing.PublicKey().Bytes(), LinkKey: link, Nonce: join.Nonce()}
	if s.hello != nil {
		s.hello(&h)
	}
	hello, err := signing.EncodeBody(h)
	require.NoError(t, err)
	raw, code, why := say(t, conn, "hello", hello)
	if code != "" {
		return code, why
	}
	var c join.Challenge
	transcript, err := join.NewTranscript(conn.Exporter()).Hello(hello).Open(raw, &c, func() (ed25519.PublicKey, error) { return c.Identity, nil })
	require.NoError(t, err)
	if s.prove.Identity == nil {
		s.prove = s.keys
	}
	p, err := transcript.Prove(token.ProofKey(), s.prove)
	require.NoError(t, err)
	if s.proof != nil {
		s.proof(&p)
	}
	proof, err := signing.EncodeBody(p)
	require.NoError(t, err)
	_, code, why = say(t, conn, "proof", proof)
	return code, why
}

func say(t *testing.T, conn *transport.JoinConn, step string, body []byte) (signed []byte, code commands.Code, why string) {
	t.Helper()
	raw, err := conn.Request(t.Context(), step, body)
	require.NoError(t, err)
	var reply struct {
		Signed json.RawMessage
		Code   commands.Code
		Why    string
	}
	require.NoError(t, json.Unmarshal(raw, &reply))
	return reply.Signed, reply.Code, reply.Why
}

func newKeys(t *testing.T) signing.Keys {
	t.Helper()
	keys, err := signing.CreateKeys(filepath.Join(t.TempDir(), "keys"))
	require.NoError(t, err)
	return keys
}

// Nobody gets in with a key that he does not hold, a key that anybody could
// hold, or a key that somebody else holds too.
func TestKeysThatAreNotAccepted(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	own, victim := newKeys(t), m.Spokes["attic"].Keys
	victimLink, err := transport.NKey(victim.LinkSeed)
	require.NoError(t, err)
	with := func(change func(*signing.Keys)) signing.Keys {
		k := own
		change(&k)
		return k
	}
	good := own.Signing.Public()
	const handshakeBad, generic = "HANDSHAKE_BAD", "join token not accepted"
	type hello = join.Hello
	tests := map[string]struct {
		who   stranger
		code  string // in the audit
		why   string
		heard string
	}{
		"another's identity key": {stranger{keys: own, hello: func(h *hello) { h.Identity = victim.Identity.Public() }}, handshakeBad, "no proof for the identity key", generic},
		"another's signing key":  {stranger{keys: own, hello: func(h *hello) { h.Signing = victim.Signing.Public() }}, handshakeBad, "no proof for the signing key", generic},
		"another's link key":     {stranger{keys: own, hello: func(h *hello) { h.LinkKey = victimLink }}, handshakeBad, "no proof for the link key", generic},
		"keys that are swapped":  {stranger{keys: own, prove: with(func(k *signing.Keys) { k.Identity, k.Signing = own.Signing, own.Identity })}, handshakeBad, "no proof for the identity key", generic},
		"no proof of the secret": {stranger{keys: own, proof: func(p *join.Proof) { p.MAC = make([]byte, 32) }}, handshakeBad, "no proof for the token's secret", generic},
		"an empty proof": {stranger{keys: own, proof: func(p *join.Proof) {
			*p = join.Proof{MAC: []byte{}, Identity: []byte{}, Signing: []byte{}, Link: []byte{}}
		}}, handshakeBad, "no proof", generic},
		"another invite than the join id's": {stranger{keys: own, hello: func(h *hello) { h.Invite = meshtest.NewID() }}, "VALIDATION", "the join id's invite", generic},
		"a short nonce":                     {stranger{keys: own, hello: func(h *hello) { h.Nonce = h.Nonce[:31] }}, "VALIDATION", "nonce", generic},
		"another protocol":                  {stranger{keys: own, hello: func(h *hello) { h.Protocols = []string{"v0"} }}, "VALIDATION", "protocol", generic},

		"the signing key of another peer, held": {stranger{keys: with(func(k *signing.Keys) { k.Signing = victim.Signing })}, "KEY_DUPLICATE", "belongs to peer attic", "key already belongs to peer attic"},
		"the link key of another peer, held":    {stranger{keys: with(func(k *signing.Keys) { k.LinkSeed = victim.LinkSeed })}, "KEY_DUPLICATE", "belongs to peer attic", "link key already belongs to peer attic"},
		"the hub's own signing key":             {stranger{keys: own, hello: func(h *hello) { h.Signing = m.Hub.Keys.Signing.Public() }}, "KEY_DUPLICATE", "belongs to this hub", "belongs to this hub"},
		"the hub's own identity key":            {stranger{keys: own, hello: func(h *hello) { h.Identity = m.Hub.Keys.Identity.Public() }}, "KEY_DUPLICATE", "belongs to this hub", "belongs to this hub"},
		"one key for two uses":                  {stranger{keys: with(func(k *signing.Keys) { k.Signing = own.Identity })}, "KEY_DUPLICATE", "", ""},

		"a key of 31 bytes":  {stranger{keys: own, hello: func(h *hello) { h.Signing = good[:31] }}, "KEY_WEAK", "32 bytes, not 31", "32 bytes, not 31"},
		"a key of 33 bytes":  {stranger{keys: own, hello: func(h *hello) { h.Signing = append(bytes.Clone(good), 0) }}, "KEY_WEAK", "32 bytes, not 33", "32 bytes, not 33"},
		"a key of no bytes":  {stranger{keys: own, hello: func(h *hello) { h.Identity = []byte{} }}, "KEY_WEAK", "32 bytes, not 0", "32 bytes, not 0"},
		"the identity point": {stranger{keys: own, hello: func(h *hello) { h.Signing = point(t, "01"+strings.Repeat("00", 31)) }}, "KEY_WEAK", "small order", "small order"},
		"a point of order eight": {stranger{keys: own, hello: func(h *hello) {
			h.Identity = point(t, "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa")
		}}, "KEY_WEAK", "small order", "small order"},
		"another spelling of zero": {stranger{keys: own, hello: func(h *hello) { h.Signing = point(t, "ed"+strings.Repeat("ff", 30)+"7f") }}, "KEY_WEAK", "canonical", "canonical"},
		"a sealing key of zeros":   {stranger{keys: own, hello: func(h *hello) { h.Sealing = make([]byte, 32) }}, "KEY_WEAK", "low order", "low order"},
		"a sealing key of order eight": {stranger{keys: own, hello: func(h *hello) {
			h.Sealing = point(t, "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800")
		}}, "KEY_WEAK", "low order", "low order"},
		"a sealing key of 31 bytes": {stranger{keys: own, hello: func(h *hello) { h.Sealing = h.Sealing[:31] }}, "KEY_WEAK", "sealing key", "sealing key"},
	}
	invites := 0
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			invites++ // what is refused twice for one reason and one name is one row for a minute
			token := m.Token(t, fmt.Sprintf("cellar-%d", invites), m.Spokes["attic"].Proxy)
			before, end := m.Hub.Sums(t), m.Hub.AuditEnd(t)

			_, why := tt.who.join(t, m, token)

			require.Contains(t, why, tt.heard)
			require.Equal(t, tt.heard == generic, why == generic)
			line := refusalAfter(t, m, end)
			require.Equal(t, tt.code, line.Code, line.Why)
			require.Contains(t, line.Why, tt.why)
			require.Equal(t, before, m.Hub.Sums(t))
		})
	}
	m.Stop(t, "hub")
	m.Start(t, "hub")
	m.AwaitLink(t, "attic")
	code, why := stranger{keys: own}.join(t, m, m.Token(t, "cellar", m.Spokes["attic"].Proxy))
	require.Empty(t, code, why)
}

func point(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	require.NoError(t, err)
	return b
}

// What is not a handshake gets no further, and nothing is remembered of it.
func TestWordsThatAreNoHandshake(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	proxy := meshtest.NewProxy(t, m.Hub.Link)
	for name, tt := range map[string]struct{ step, body, code string }{
		"garbage":               {"hello", "garbage", "BODY_JSON"},
		"nothing":               {"hello", "", "BODY_JSON"},
		"a field too many":      {"hello", `{"protocols":["v2"],"x":1}`, "BODY_JSON"},
		"a field twice":         {"hello", `{"invite":"a","invite":"b"}`, "BODY_JSON"},
		"a hello without keys":  {"hello", `{"protocols":["v2"]}`, "VALIDATION"},
		"a proof without hello": {"proof", `{}`, "NOT_FOUND"},
		"200 KiB":               {"hello", strings.Repeat("[", 200<<10), "BODY_JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			token := m.Token(t, "attic", proxy)
			conn, err := transport.DialJoin(t.Context(), m.Hub.Link, []string{token.Pin}, token.JoinID)
			require.NoError(t, err)
			defer conn.Close()
			before, end := m.Hub.Sums(t), m.Hub.AuditEnd(t)

			_, code, why := say(t, conn, tt.step, []byte(tt.body))

			require.Equal(t, commands.Code("JOIN_REFUSED"), code)
			require.Equal(t, "join token not accepted", why)
			require.Equal(t, tt.code, refusalAfter(t, m, end).Code)
			require.Equal(t, before, m.Hub.Sums(t))
		})
	}
}

// An invite that is revoked while somebody joins with it lets him in no more.
func TestAnInviteRevokedBetweenTwoSteps(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	token := m.Token(t, "attic", meshtest.NewProxy(t, m.Hub.Link))
	end := m.Hub.AuditEnd(t)
	revoke := func(*join.Proof) { m.Hub.Do(t, "POST", "/api/v1/invites/attic/revoke", map[string]string{}, nil) }

	code, why := stranger{keys: newKeys(t), proof: revoke}.join(t, m, token)

	require.Equal(t, commands.Code("JOIN_REFUSED"), code, why)
	require.Contains(t, refusalAfter(t, m, end).Why, "invite was revoked")
	require.Zero(t, m.Hub.Count(t, `SELECT count(*) FROM connections`))
}

// What was said on one connection is worth nothing on another.
func TestAProofIsBoundToItsConnection(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	token, keys := m.Token(t, "attic", meshtest.NewProxy(t, m.Hub.Link)), newKeys(t)
	var stolen join.Proof
	code, why := stranger{keys: keys, proof: func(p *join.Proof) { stolen = *p; p.MAC = make([]byte, 32) }}.join(t, m, token)
	require.Equal(t, commands.Code("JOIN_REFUSED"), code, why)

	code, why = stranger{keys: keys, proof: func(p *join.Proof) { *p = stolen }}.join(t, m, token)

	require.Equal(t, commands.Code("JOIN_REFUSED"), code, why)
	require.Zero(t, m.Hub.Count(t, `SELECT count(*) FROM connections`))
}
