package join

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/signing"
)

// keysOf are the four keys of the instance name, always the same.
func keysOf(t testing.TB, name string) signing.Keys {
	t.Helper()
	sealing, err := ecdh.X25519().NewPrivateKey(seed(name + " sealing"))
	require.NoError(t, err)
	return signing.Keys{Identity: keyOf(t, name+" identity"), Signing: keyOf(t, name+" signing"), Sealing: sealing, LinkSeed: seed(name + " link")}
}

func keyOf(t testing.TB, name string) *signing.Signer {
	t.Helper()
	s, err := signing.NewSigner(seed(name))
	require.NoError(t, err)
	return s
}

func signerOf(t testing.TB, name string) ed25519.PrivateKey {
	t.Helper()
	return ed25519.NewKeyFromSeed(seed(name))
}

// A shaking is one handshake between a hub and a spoke, as each side does its
// part. What passes between them goes through wire.
type shaking struct {
	hub, spoke               signing.Keys
	hubChannel, spokeChannel []byte // the exporter, as each side sees it
	hubSecret, spokeSecret   []byte // the proof key, likewise
	expects                  signing.InstanceID
	proves                   signing.Keys // the keys with which the spoke makes its proof
	wire                     func(step string, raw []byte) []byte
}

func newShaking(t testing.TB) *shaking {
	t.Helper()
	channel, secret := sha256.Sum256([]byte("channel")), sha256.Sum256([]byte("secret"))
	h, s := keysOf(t, "hub"), keysOf(t, "attic")
	return &shaking{hub: h, spoke: s, hubChannel: channel[:], spokeChannel: channel[:], hubSecret: secret[:], spokeSecret: secret[:],
		expects: h.InstanceID(), proves: s, wire: func(_ string, raw []byte) []byte { return raw }}
}

var errOtherHub = errors.New("not the hub that the token names")

// run goes through the four messages; the error is that of the side that refused.
func (s *shaking) run() (accept Accept, err error) {
	link, err := transport.NKey(s.spoke.LinkSeed)
	if err != nil {
		return accept, err
	}
	hello, err := signing.EncodeBody(Hello{Protocols: []string{Protocol}, Invite: "0193a3c0-2222-7aaa-8bbb-00000000000a", Identity: s.spoke.Identity.Public(),
		Signing: s.spoke.Signing.Public(), Sealing: s.spoke.Sealing.PublicKey().Bytes(), LinkKey: link, Nonce: bytes.Repeat([]byte{7}, 32)})
	if err != nil {
		return accept, err
	}

	heard := s.wire("hello", hello)
	var h Hello
	if err := signing.DecodeBody(heard, &h); err != nil {
		return accept, err
	}
	if err := h.Admit(); err != nil {
		return accept, err
	}
	challenge, hubSide, err := NewTranscript(s.hubChannel).Hello(heard).Sign(s.hub.Identity, Challenge{Protocol: Protocol, Identity: s.hub.Identity.Public(),
		Signing: s.hub.Signing.Public(), Sealing: s.hub.Sealing.PublicKey().Bytes(), Conn: "0193a3c0-2222-7aaa-8bbb-00000000000b", Epoch: 1, Name: "lab", Nonce: bytes.Repeat([]byte{8}, 32)})
	if err != nil {
		return accept, err
	}

	var c Challenge
	spokeSide, err := NewTranscript(s.spokeChannel).Hello(hello).Open(s.wire("challenge", challenge), &c, func() (ed25519.PublicKey, error) {
		if err := c.Admit(); err != nil {
			return nil, err
		}
		if signing.InstanceIDOf(c.Identity) != s.expects {
			return nil, errOtherHub
		}
		return c.Identity, nil
	})
	if err != nil {
		return accept, err
	}
	p, err := spokeSide.Prove(s.spokeSecret, s.proves)
	if err != nil {
		return accept, err
	}
	proof, err := signing.EncodeBody(p)
	if err != nil {
		return accept, err
	}

	heard = s.wire("proof", proof)
	var q Proof
	if err := signing.DecodeBody(heard, &q); err != nil {
		return accept, err
	}
	if err := hubSide.Check(q, s.hubSecret, h); err != nil {
		return accept, err
	}
	last, _, err := hubSide.Proof(heard).Sign(s.hub.Identity, Accept{Conn: c.Conn, Name: "attic", State: "active", Epoch: 1})
	if err != nil {
		return accept, err
	}

	_, err = spokeSide.Proof(proof).Open(s.wire("accept", last), &accept, func() (ed25519.PublicKey, error) { return c.Identity, nil })
	return accept, err
}

func TestAHandshake(t *testing.T) {
	t.Parallel()

	got, err := newShaking(t).run()

	require.NoError(t, err)
	require.Equal(t, Accept{Conn: "0193a3c0-2222-7aaa-8bbb-00000000000b", Name: "attic", State: "active", Epoch: 1}, got)
}

// Whoever sits between the two can change nothing: every byte of every message,
// changed in any of three ways, ends the handshake.
func TestEveryByteOfAHandshakeCounts(t *testing.T) {
	t.Parallel()
	sizes := map[string]int{}
	s := newShaking(t)
	s.wire = func(step string, raw []byte) []byte { sizes[step] = len(raw); return raw }
	_, err := s.run()
	require.NoError(t, err)
	require.Len(t, sizes, 4)
	for step, size := range sizes {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			for at := range size {
				for _, mask := range []byte{0x01, 0x20, 0x80} {
					s := *s
					s.wire = flip(step, at, mask)
					_, err := s.run()
					require.Error(t, err, "byte %d of the %s changed by %#x", at, step, mask)
				}
			}
			for _, change := range map[string]func([]byte) []byte{
				"dropped":   func([]byte) []byte { return nil },
				"cut short": func(raw []byte) []byte { return raw[:len(raw)-1] },
				"longer":    func(raw []byte) []byte { return append(slices.Clone(raw), ' ') },
			} {
				s := *s
				s.wire = only(step, change)
				_, err := s.run()
				require.Error(t, err)
			}
		})
	}
}

func only(step string, change func([]byte) []byte) func(string, []byte) []byte {
	return func(at string, raw []byte) []byte {
		if at != step {
			return raw
		}
		return change(raw)
	}
}

func flip(step string, at int, mask byte) func(string, []byte) []byte {
	return only(step, func(raw []byte) []byte {
		raw = slices.Clone(raw)
		raw[at] ^= mask
		return raw
	})
}

func TestWhoIsRefusedInAHandshake(t *testing.T) {
	t.Parallel()
	mallory := keysOf(t, "mallory")
	other := sha256.Sum256([]byte("other"))
	tests := map[string]struct {
		change func(*shaking)
		want   error
		says   string
	}{
		"a hub on another connection":          {func(s *shaking) { s.hubChannel = other[:] }, ErrHandshake, ""},
		"a spoke on another connection":        {func(s *shaking) { s.spokeChannel = other[:] }, ErrHandshake, ""},
		"a hub other than in the token":        {func(s *shaking) { s.expects = mallory.InstanceID() }, errOtherHub, ""},
		"a spoke without the secret":           {func(s *shaking) { s.spokeSecret = other[:] }, ErrHandshake, "secret"},
		"a spoke with an empty secret":         {func(s *shaking) { s.spokeSecret = nil }, ErrHandshake, "secret"},
		"another's identity key":               {func(s *shaking) { s.proves.Identity = mallory.Identity }, ErrHandshake, "identity key"},
		"another's signing key":                {func(s *shaking) { s.proves.Signing = mallory.Signing }, ErrHandshake, "signing key"},
		"another's link key":                   {func(s *shaking) { s.proves.LinkSeed = mallory.LinkSeed }, ErrHandshake, "link key"},
		"one key for two purposes":             {func(s *shaking) { s.spoke.Signing = s.spoke.Identity; s.proves = s.spoke }, nil, "two purposes"},
		"the link key for a second purpose":    {func(s *shaking) { s.spoke.LinkSeed = seed("attic signing"); s.proves = s.spoke }, nil, "two purposes"},
		"a hub that signs with another key":    {func(s *shaking) { s.wire = resign(s.hub.Identity.Public(), mallory.Identity) }, ErrHandshake, ""},
		"a proof from an earlier handshake":    {replayed("proof"), ErrHandshake, ""},
		"a challenge from an earlier one":      {replayed("challenge"), ErrHandshake, ""},
		"an acceptance from an earlier one":    {replayed("accept"), ErrHandshake, ""},
		"the challenge in place of the accept": {reflected("challenge", "accept"), ErrHandshake, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShaking(t)
			tt.change(s)

			_, err := s.run()

			require.Error(t, err)
			require.ErrorContains(t, err, tt.says)
			if tt.want != nil {
				require.ErrorIs(t, err, tt.want)
			}
		})
	}
}

// replayed carries a message of an earlier handshake of the same two, with the
// same keys, secret and nonces, on another connection.
func replayed(step string) func(*shaking) {
	return func(s *shaking) {
		earlier := *s
		before := sha256.Sum256([]byte("an earlier connection"))
		earlier.hubChannel, earlier.spokeChannel = before[:], before[:]
		var kept []byte
		earlier.wire = only(step, func(raw []byte) []byte { kept = raw; return raw })
		if _, err := earlier.run(); err != nil {
			panic(fmt.Sprintf("the earlier handshake: %v", err))
		}
		s.wire = only(step, func([]byte) []byte { return kept })
	}
}

// reflected answers one step with the message of another of the same handshake.
func reflected(from, to string) func(*shaking) {
	return func(s *shaking) {
		var kept []byte
		s.wire = func(step string, raw []byte) []byte {
			if step == from {
				kept = raw
			}
			if step == to {
				return kept
			}
			return raw
		}
	}
}

// resign signs the hub's challenge again, under another key, over the right
// transcript: all that a man in the middle could do without the hub's key.
func resign(claimed ed25519.PublicKey, by *signing.Signer) func(string, []byte) []byte {
	return only("challenge", func(raw []byte) []byte {
		var s Signed
		if err := signing.DecodeBody(raw, &s); err != nil {
			panic(err)
		}
		s.Sig = by.Sign(handshake, s.Sig[:sha256.Size])
		again, err := signing.EncodeBody(s)
		if err != nil {
			panic(err)
		}
		return again
	})
}

// A hub that is asked to sign cannot be used to make a proof, nor a spoke that
// proves to make a hub's message: the two sign different things.
func TestNothingIsReflected(t *testing.T) {
	t.Parallel()
	hub, spoke := keysOf(t, "hub"), keysOf(t, "attic")
	link, err := transport.NKey(hub.LinkSeed)
	require.NoError(t, err)
	secret := []byte("secret")
	at := NewTranscript([]byte("channel"))
	p, err := at.Prove(secret, hub)
	require.NoError(t, err)
	hello := Hello{Identity: hub.Identity.Public(), Signing: hub.Signing.Public(), LinkKey: link}
	require.NoError(t, at.Check(p, secret, hello), "as it should be")

	raw, next, err := at.Sign(hub.Identity, struct{}{})
	require.NoError(t, err)
	var signed Signed
	require.NoError(t, signing.DecodeBody(raw, &signed))

	asProof := p
	asProof.Identity = signed.Sig
	require.ErrorIs(t, at.Check(asProof, secret, hello), ErrHandshake, "a hub's signature as a proof")
	require.ErrorIs(t, next.Check(p, secret, hello), ErrHandshake, "a proof for a later moment")
	forged, err := signing.EncodeBody(Signed{signed.Message, p.Identity})
	require.NoError(t, err)
	_, err = at.Open(forged, &struct{}{}, func() (ed25519.PublicKey, error) { return hub.Identity.Public(), nil })
	require.ErrorIs(t, err, ErrHandshake, "a proof as a hub's signature")
	_, err = at.Open(raw, &struct{}{}, func() (ed25519.PublicKey, error) { return spoke.Identity.Public(), nil })
	require.ErrorIs(t, err, ErrHandshake, "another's signature")
	require.NotEqual(t, at.Hello(nil), at.Proof(nil), "two steps with the same words")
	require.NotEqual(t, at.add("a", []byte("bc")), at.add("ab", []byte("c")), "words that move from one part to the next")
}

// Keys of a wrong length, weak ones and wrong link keys are refused before any
// of them is used, by both sides.
func TestKeysAreAdmittedBeforeUse(t *testing.T) {
	t.Parallel()
	k := keysOf(t, "attic")
	link, err := transport.NKey(k.LinkSeed)
	require.NoError(t, err)
	good := Hello{Identity: k.Identity.Public(), Signing: k.Signing.Public(), Sealing: k.Sealing.PublicKey().Bytes(), LinkKey: link}
	require.NoError(t, good.Admit())
	weak := make([]byte, 32)
	for name, change := range map[string]func(*Hello){
		"no identity":        func(h *Hello) { h.Identity = nil },
		"a short identity":   func(h *Hello) { h.Identity = h.Identity[:31] },
		"a weak identity":    func(h *Hello) { h.Identity = weak },
		"a weak signing key": func(h *Hello) { h.Signing = weak },
		"no sealing key":     func(h *Hello) { h.Sealing = nil },
		"a sealing key of 0": func(h *Hello) { h.Sealing = weak },
		"no link key":        func(h *Hello) { h.LinkKey = "" },
		"an account's key":   func(h *Hello) { h.LinkKey = "A" + h.LinkKey[1:] },
	} {
		h := good
		change(&h)
		err := h.Admit()
		_, rejected := errors.AsType[*signing.Rejected](err)
		require.True(t, rejected, "%s: %v", name, err)
	}
	c := Challenge{Identity: good.Identity, Signing: good.Signing, Sealing: good.Sealing}
	require.NoError(t, c.Admit())
	c.Identity = c.Signing
	require.Error(t, c.Admit())
	c = Challenge{Identity: good.Identity, Signing: good.Signing, Sealing: weak}
	rejected, _ := errors.AsType[*signing.Rejected](c.Admit())
	require.NotNil(t, rejected, "a hub's sealing key of zeros")
	require.Equal(t, signing.KeyWeak, rejected.Code)
}
