package signing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestEverySignatureIsChecked signs with two keys, as a change of keys does.
func TestEverySignatureIsChecked(t *testing.T) {
	first, second, stranger := seedSigner(t, 2), seedSigner(t, 4), seedSigner(t, 5)
	// The message names the first key of the connection inside; everything else is in order.
	message, v, now := sealedBy(t, first)
	v.Keys[second.KeyID()] = PeerKey{second.KeyID(), v.Keys[first.KeyID()].Owner, second.Public()}
	for name, c := range map[string]struct {
		by   []*Signer
		want Code
	}{
		"by both": {[]*Signer{first, second}, ""},
		"the second is of a key that is not known":    {[]*Signer{first, stranger}, KeyUnknown},
		"the header names the key that signed second": {[]*Signer{second, first}, KidMismatch},
		"the header names no key that signed":         {[]*Signer{second}, KidMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := v.Open(signedBy(t, message, nil, c.by...), now)

			if c.want == "" {
				require.NoError(t, err)
				require.Equal(t, `{"task":"x"}`, string(got.Body()))
				return
			}
			require.Equal(t, string(c.want), codeOf(err))
		})
	}

	_, err := v.Open(signedBy(t, message, second, first, second), now)

	require.Equal(t, string(SigBad), codeOf(err), "the second signature is of something else")
}

// sealedBy is a message between instances, of which several keys may sign one.
func sealedBy(t *testing.T, key *Signer) ([]byte, Verifier, time.Time) {
	t.Helper()
	envelope, v, now := sealed(t, nil)
	m, err := Unseal(envelope, 1)
	require.NoError(t, err)
	s, err := key.Seal(Peer, m.Header, []byte(`{"task":"x"}`))
	require.NoError(t, err)
	return s.Envelope, v, now
}

// signedBy is the message under signatures of these keys, in this order; wrong
// signs something else.
func signedBy(t *testing.T, envelope []byte, wrong *Signer, by ...*Signer) []byte {
	t.Helper()
	d, r := decodeEnvelope(envelope)
	require.Nil(t, r)
	d.sigs = nil
	for _, s := range by {
		what := d.place.head(leafOf(d.typ, d.payload))
		if s == wrong {
			what.root = node{1}
		}
		d.sigs = append(d.sigs, signatureBytes{s.KeyID(), s.signHead(what)})
	}
	return d.encode()
}
