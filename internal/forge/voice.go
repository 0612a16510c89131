// Package forge makes messages by hand: good ones, and every way to get one wrong.
//
// A [Voice] holds the real keys of one side of a connection and says what it is told to
// say. Tests of both sides use it, and the conformance runner speaks with it. What cannot
// be encoded at all is a mistake of the caller, and panics.
//
// Its tests are those of hub and of spoke, which get what it makes by internal/meshtest.
package forge

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

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
	Lock  []byte       // sealing key of who is spoken to
	Seq   atomic.Int64 // the last number that was given
}

// must returns v, and panics where a message could not be made at all.
func must[T any](v T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("making a message by hand: %v", err))
	}
	return v
}

// NewID returns a fresh id for a message or a task.
func NewID() string { return uuid.Must(uuid.NewV7()).String() }

// Header returns a header that nothing is wrong with: of a message of this
// kind, issued now, acceptable for an hour, with the next sequence number.
func (v *Voice) Header(queue commands.Kind, re *signing.Ref) signing.Header {
	now := time.Now()
	return signing.Header{V: 2, ID: NewID(), Kind: string(queue), Iss: v.Keys.InstanceID(), Kid: v.Keys.Signing.KeyID(), Aud: v.Peer,
		Conn: v.Conn, Epoch: v.Epoch, Seq: v.Seq.Add(1), Iat: now.UnixMilli(), Exp: now.Add(time.Hour).UnixMilli(), Wsp: "main", Re: re}
}

// Seal signs a message as its owner would. change may be nil.
func (v *Voice) Seal(body commands.Body, re *signing.Ref, change func(*signing.Header)) signing.Sealed {
	h := v.Header(body.Kind(), re)
	if change != nil {
		change(&h)
	}
	return must(v.Keys.Signing.Seal(body.Kind().Type(), h, must(commands.EncodeBody(body))))
}

// Valued returns spawn with values for its variables, files and standard input, sealed for the message id.
func (v *Voice) Valued(spawn *commands.Spawn, id string, values ...string) *commands.Spawn {
	list := make(commands.Values, len(values))
	for i, v := range values {
		list[i] = commands.NewSecret(v)
	}
	marked := must(spawn.Marked(v.Keys.Decrypter, list))
	return must(marked.Seal(v.Lock, commands.ValuesPlace(v.Peer, v.Conn, id), list))
}

// A Forgery is an envelope in parts, any of which can be anything.
type Forgery struct {
	Type   signing.Type
	Header []byte
	Tree   string // its place, as it is written; "" for the place in a tree of one
	Sigs   []Sig
	Body   []byte
}

// alone is where a message is that was sealed alone.
const alone = `{"size":1,"index":0,"path":""}`

// A Sig is a signature with the key that it is said to be by.
type Sig struct {
	KeyID signing.KeyID
	Sig   []byte
}

// Forge takes a good message apart.
func (v *Voice) Forge(typ signing.Type, h signing.Header, body []byte) Forgery {
	sum := sha256.Sum256(body)
	h.Body = signing.BodyRef{Type: h.Kind + ".v1", Len: len(body), SHA256: hex.EncodeToString(sum[:]), Enc: "none"}
	f := Forgery{Type: typ, Header: must(signing.EncodeBody(h)), Body: body}
	f.Sigs = []Sig{f.Signed(v.Keys.Signing)}
	return f
}

// Signed is the signature of key over the tree that has the message alone. It is made here
// once more, from docs/protocol.md.
func (f Forgery) Signed(key *signing.Signer) Sig {
	root := sha256.Sum256(fmt.Appendf(nil, "\x00DSSEv1 %d %s %d %s", len(f.Type), f.Type, len(f.Header), f.Header))
	return Sig{key.KeyID(), key.Sign("application/vnd.spawnmesh.tree.v2", fmt.Appendf(nil, "1 %x", root))}
}

// Envelope puts the parts together, whether or not they fit.
func (f Forgery) Envelope() []byte {
	var b bytes.Buffer
	b.WriteString(`{"payloadType":"` + string(f.Type) + `","payload":"` + base64.StdEncoding.EncodeToString(f.Header) + `","tree":` + cmp.Or(f.Tree, alone) + `,"signatures":[`)
	for i, s := range f.Sigs {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`{"keyid":"` + string(s.KeyID) + `","sig":"` + base64.StdEncoding.EncodeToString(s.Sig) + `"}`)
	}
	b.WriteString(`],"body":"` + base64.StdEncoding.EncodeToString(f.Body) + `"}`)
	return b.Bytes()
}
