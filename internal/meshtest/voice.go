package meshtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// A Voice is one side of a connection in the wrong hands: its real keys, and
// nothing that keeps it from saying what it likes.
type Voice struct {
	Keys  signing.Keys
	Peer  signing.InstanceID // who is spoken to
	Conn  string
	Epoch int64
	seq   atomic.Int64
}

// NewID returns a fresh id for a message or a task.
func NewID() string { return uuid.Must(uuid.NewV7()).String() }

// Header returns a header that nothing is wrong with: of a message of this
// kind, issued now, acceptable for an hour, with the next sequence number.
func (v *Voice) Header(queue commands.Kind, re *signing.Ref) signing.Header {
	now := time.Now()
	return signing.Header{V: 1, ID: NewID(), Kind: string(queue), Iss: v.Keys.InstanceID(), Kid: v.Keys.Signing.KeyID(), Aud: v.Peer,
		Conn: v.Conn, Epoch: v.Epoch, Seq: v.seq.Add(1), Iat: now.UnixMilli(), Exp: now.Add(time.Hour).UnixMilli(), Wsp: "main", Re: re}
}

// Seal signs a message as its owner would. change may be nil.
func (v *Voice) Seal(t testing.TB, body commands.Body, re *signing.Ref, change func(*signing.Header)) signing.Sealed {
	t.Helper()
	raw, err := commands.EncodeBody(body)
	require.NoError(t, err)
	h := v.Header(body.Kind(), re)
	if change != nil {
		change(&h)
	}
	s, err := v.Keys.Signing.Seal(body.Kind().Type(), h, raw)
	require.NoError(t, err)
	return s
}

// A Forgery is an envelope in parts, any of which can be anything.
type Forgery struct {
	Type   signing.Type
	Header []byte
	Sigs   []Sig
	Body   []byte
}

// A Sig is a signature with the key that it is said to be by.
type Sig struct {
	KeyID signing.KeyID
	Sig   []byte
}

// Forge takes a good message apart. change may alter the header's text before
// it is signed; nil leaves it alone.
func (v *Voice) Forge(t testing.TB, typ signing.Type, h signing.Header, body []byte, change func(header []byte) []byte) Forgery {
	t.Helper()
	sum := sha256.Sum256(body)
	h.Body = signing.BodyRef{Type: h.Kind + ".v1", Len: len(body), SHA256: hex.EncodeToString(sum[:]), Enc: "none"}
	header, err := signing.EncodeBody(h)
	require.NoError(t, err)
	if change != nil {
		changed := change(bytes.Clone(header))
		require.NotEqual(t, string(header), string(changed), "the forgery changes nothing")
		header = changed
	}
	f := Forgery{Type: typ, Header: header, Body: body}
	f.Sigs = []Sig{{v.Keys.Signing.KeyID(), v.Keys.Signing.Sign(typ, header)}}
	return f
}

// Envelope puts the parts together, whether or not they fit.
func (f Forgery) Envelope() []byte {
	var b bytes.Buffer
	b.WriteString(`{"payloadType":"` + string(f.Type) + `","payload":"` + base64.StdEncoding.EncodeToString(f.Header) + `","signatures":[`)
	for i, s := range f.Sigs {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`{"keyid":"` + string(s.KeyID) + `","sig":"` + base64.StdEncoding.EncodeToString(s.Sig) + `"}`)
	}
	b.WriteString(`],"body":"` + base64.StdEncoding.EncodeToString(f.Body) + `"}`)
	return b.Bytes()
}
