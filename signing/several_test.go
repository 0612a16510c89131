package signing

import (
	"encoding/base64"
	"encoding/json"
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
	var e envelopeJSON
	require.NoError(t, json.Unmarshal(envelope, &e))
	payload, err := base64.StdEncoding.DecodeString(e.Payload)
	require.NoError(t, err)
	h, r := decodeHeader(payload)
	require.Nil(t, r)
	s, err := key.Seal(Peer, h, []byte(`{"task":"x"}`))
	require.NoError(t, err)
	return s.Envelope, v, now
}

// signedBy is the message under signatures of these keys, in this order; wrong
// signs something else.
func signedBy(t *testing.T, envelope []byte, wrong *Signer, by ...*Signer) []byte {
	t.Helper()
	var e envelopeJSON
	require.NoError(t, json.Unmarshal(envelope, &e))
	payload, err := base64.StdEncoding.DecodeString(e.Payload)
	require.NoError(t, err)
	e.Signatures = nil
	for _, s := range by {
		what := payload
		if s == wrong {
			what = []byte("something else")
		}
		e.Signatures = append(e.Signatures, signature{s.KeyID(), base64.StdEncoding.EncodeToString(s.Sign(Peer, what))})
	}
	out, err := encode(e)
	require.NoError(t, err)
	return out
}
