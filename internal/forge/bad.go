package forge

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// A Bad is a message that must be refused, whoever gets it.
type Bad struct {
	Class string // what it gets wrong: "bytes", "signatures"
	Name  string
	Code  signing.Code
	// Signed says that signature, form and address are right: the sender is
	// known, so the refusal is kept under the message's id and answered.
	Signed   bool
	Envelope []byte
}

// bads collects bad messages that one voice can say.
type bads struct {
	v     *Voice
	good  func() (commands.Body, *signing.Ref)
	class string
	list  []Bad
}

// Bad returns every way to get a message wrong, made from messages that good
// makes: what a stranger, a broken broker or the peer itself could send. The
// order is always the same.
func (v *Voice) Bad(good func() (commands.Body, *signing.Ref)) []Bad {
	b := &bads{v: v, good: good}
	for _, c := range []struct {
		class string
		make  func()
	}{{"bytes", b.bytes}, {"types", b.types}, {"trees", b.places}, {"signatures", b.signatures}, {"numbers", b.numbers}, {"fields", b.fields},
		{"identifiers", b.identifiers}, {"addresses", b.addresses}, {"workspaces", b.workspaces}, {"times", b.times}, {"kinds", b.kinds}, {"bodies", b.bodies}} {
		b.class = c.class
		c.make()
	}
	slices.SortFunc(b.list, func(x, y Bad) int { return strings.Compare(x.Name, y.Name) })
	return b.list
}

func (b *bads) add(code signing.Code, name string, envelope []byte) {
	b.list = append(b.list, Bad{Class: b.class, Name: name, Code: code, Envelope: envelope})
}

// parts is a good message in parts; change may be nil and is made before it is
// signed.
func (b *bads) parts(change func(*signing.Header)) Forgery {
	body, re := b.good()
	h := b.v.Header(body.Kind(), re)
	if change != nil {
		change(&h)
	}
	return b.v.Forge(body.Kind().Type(), h, must(commands.EncodeBody(body)))
}

// forged adds a good message whose parts were changed after it was signed.
func (b *bads) forged(code signing.Code, name string, change func(*Forgery)) {
	f := b.parts(nil)
	change(&f)
	b.add(code, name, f.Envelope())
}

// header adds a message whose header's text was changed before it was signed.
func (b *bads) header(code signing.Code, name string, change func(string) string) {
	f := b.parts(nil)
	changed := change(string(f.Header))
	if changed == string(f.Header) {
		panic("the forgery changes nothing: " + name)
	}
	f.Header = []byte(changed)
	f.Sigs = []Sig{f.Signed(b.v.Keys.Signing)}
	b.add(code, name, f.Envelope())
}

// field adds a message with another value in its header.
func (b *bads) field(code signing.Code, name string, change func(*signing.Header)) {
	b.add(code, name, b.parts(change).Envelope())
}

// bytes are not envelopes, or more than one.
func (b *bads) bytes() {
	envelope := func() []byte { return b.parts(nil).Envelope() }
	noise := make([]byte, 4096)
	chacha := rand.NewChaCha8([32]byte{1})
	_, _ = chacha.Read(noise) // never fails
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(envelope()) // into memory
	_ = z.Close()

	b.add(signing.EnvJSON, "empty", nil)
	b.add(signing.EnvJSON, "one byte", []byte("{"))
	b.add(signing.EnvCanon, "random bytes", noise)
	b.add(signing.EnvCanon, "compressed", zipped.Bytes())
	b.add(signing.EnvCanon, "another encoding", []byte("\x0a\x10agent.spawn\x12\x04\x08\x01"))
	b.add(signing.EnvCanon, "newline after it", append(envelope(), '\n'))
	b.add(signing.EnvJSON, "second envelope after it", append(envelope(), envelope()...))
	b.add(signing.EnvCanon, "space before it", append([]byte(" "), envelope()...))
	b.add(signing.EnvCanon, "byte order mark", append([]byte("\xef\xbb\xbf"), envelope()...))
	b.add(signing.EnvCanon, "unknown field outside", bytes.Replace(envelope(), []byte(`{"payloadType"`), []byte(`{"x":1,"payloadType"`), 1))
	b.add(signing.EnvCanon, "field in another case", bytes.Replace(envelope(), []byte(`"payload":`), []byte(`"PAYLOAD":`), 1))
	b.add(signing.EnvCanon, "two payloads", bytes.Replace(envelope(), []byte(`"signatures"`), []byte(`"payload":"","signatures"`), 1))
	b.add(signing.EnvCanon, "escaped letter", bytes.Replace(envelope(), []byte(`"payloadType":"a`), []byte(`"payloadType":"\u0061`), 1))
	b.add(signing.EnvB64, "line break in base64", bytes.Replace(envelope(), []byte(`"payload":"`), []byte(`"payload":"\n`), 1))
	b.add(signing.EnvB64, "header of 5000 bytes", Forgery{Type: signing.Command, Header: make([]byte, 5000), Sigs: []Sig{{"k", make([]byte, 64)}}}.Envelope())
	b.add(signing.EnvB64, "body above its limit", Forgery{Type: signing.Command, Sigs: []Sig{{"k", make([]byte, 64)}}, Body: make([]byte, signing.MaxBody+1)}.Envelope())
	b.add(signing.EnvJSON, "deep nesting", []byte(strings.Repeat("[", 100_000)))
}

// types are types that this version does not speak, or that were not signed.
func (b *bads) types() {
	for name, change := range map[string]func(signing.Type) signing.Type{
		"type of version 1":         func(t signing.Type) signing.Type { return t[:len(t)-len("v2+json")] + "v1+json" },
		"type of version 3":         func(t signing.Type) signing.Type { return t[:len(t)-len("v2+json")] + "v3+json" },
		"type of a tree's head":     func(signing.Type) signing.Type { return "application/vnd.spawnmesh.tree.v2" },
		"type and a space":          func(t signing.Type) signing.Type { return t + " " },
		"type in upper case":        func(t signing.Type) signing.Type { return signing.Type(strings.ToUpper(string(t))) },
		"type with a parameter":     func(t signing.Type) signing.Type { return t + ";charset=utf-8" },
		"no type":                   func(signing.Type) signing.Type { return "" },
		"the handshake's own type ": func(signing.Type) signing.Type { return "application/vnd.spawnmesh.handshake.v1+json" },
	} {
		b.forged(signing.EnvType, name, func(f *Forgery) { f.Type = change(f.Type) })
	}
	b.forged(signing.SigBad, "type swapped", func(f *Forgery) { f.Type = signing.Result })
}

// places are in no tree, not in the one that was signed, or not in their one spelling.
func (b *bads) places() {
	node := base64.StdEncoding.EncodeToString(make([]byte, 32))
	for _, p := range []struct {
		code       signing.Code
		name, tree string
	}{
		{signing.EnvCanon, "tree of none", `{"size":0,"index":0,"path":""}`},
		{signing.EnvCanon, "tree of 65", `{"size":65,"index":0,"path":""}`},
		{signing.EnvCanon, "tree of 2^62", `{"size":4611686018427387904,"index":0,"path":""}`},
		{signing.EnvCanon, "index as large as the tree", `{"size":1,"index":1,"path":""}`},
		{signing.EnvCanon, "index -1", `{"size":1,"index":-1,"path":""}`},
		{signing.EnvCanon, "tree in another order", `{"index":0,"size":1,"path":""}`},
		{signing.EnvCanon, "tree null", `null`},
		{signing.EnvJSON, "size 1.0", `{"size":1.0,"index":0,"path":""}`},
		{signing.EnvB64, "path in a tree of one", `{"size":1,"index":0,"path":"` + node + `"}`},
		{signing.EnvB64, "no path in a tree of two", `{"size":2,"index":0,"path":""}`},
		{signing.EnvB64, "path of half a node", `{"size":2,"index":0,"path":"AAAA"}`},
		{signing.SigBad, "path to another root", `{"size":2,"index":1,"path":"` + node + `"}`},
	} {
		b.forged(p.code, p.name, func(f *Forgery) { f.Tree = p.tree })
	}
	b.forged(signing.SigBad, "header signed as in version 1", func(f *Forgery) { f.Sigs[0].Sig = b.v.Keys.Signing.Sign(f.Type, f.Header) })
}

// order is the order L of the curve's group.
var order, _ = new(big.Int).SetString("7237005577332262213973186563042994240857116359379907606001950938285454250989", 10)

// malleate adds L to the half of a signature that is a number modulo L.
func malleate(sig []byte) []byte {
	s := bytes.Clone(sig)
	half := s[32:]
	reverse(half)
	new(big.Int).Add(new(big.Int).SetBytes(half), order).FillBytes(half)
	reverse(half)
	return s
}

func reverse(b []byte) {
	for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
		b[i], b[j] = b[j], b[i]
	}
}

// signatures are not by the key they name, not by a key of this connection, or
// not one.
func (b *bads) signatures() {
	stranger := must(signing.NewSigner(bytes.Repeat([]byte{77}, 32)))
	sig := func(code signing.Code, name string, change func([]byte) []byte) {
		b.forged(code, name, func(f *Forgery) { f.Sigs[0].Sig = change(f.Sigs[0].Sig) })
	}
	sig(signing.SigBad, "S + L", malleate)
	sig(signing.SigBad, "signature of zeros", func([]byte) []byte { return make([]byte, 64) })
	sig(signing.EnvB64, "signature of 63 bytes", func(s []byte) []byte { return s[:63] })
	sig(signing.EnvB64, "signature of 65 bytes", func(s []byte) []byte { return append(bytes.Clone(s), 0) })
	sig(signing.EnvB64, "signature of no bytes", func([]byte) []byte { return nil })
	sig(signing.SigBad, "one bit of the signature", func(s []byte) []byte { s[5] ^= 8; return s })
	b.forged(signing.SigBad, "one bit of the header", func(f *Forgery) { f.Header[30] ^= 1 })
	b.forged(signing.EnvSigCount, "no signature", func(f *Forgery) { f.Sigs = nil })
	b.forged(signing.EnvSigCount, "two identical signatures", func(f *Forgery) { f.Sigs = append(f.Sigs, f.Sigs[0]) })
	b.forged(signing.EnvSigCount, "two signatures", func(f *Forgery) {
		f.Sigs = append(f.Sigs, f.Signed(stranger))
	})
	b.forged(signing.EnvSigCount, "1000 signatures", func(f *Forgery) {
		for i := range 999 {
			f.Sigs = append(f.Sigs, Sig{signing.KeyID(fmt.Sprint(i)), f.Sigs[0].Sig})
		}
	})
	b.forged(signing.KeyUnknown, "a stranger's key", func(f *Forgery) {
		f.Sigs = []Sig{f.Signed(stranger)}
	})
	b.forged(signing.SigBad, "a stranger's signature under the right key's name", func(f *Forgery) {
		f.Sigs[0].Sig = f.Signed(stranger).Sig
	})
	b.forged(signing.KeyUnknown, "signed by the identity key", func(f *Forgery) {
		f.Sigs = []Sig{f.Signed(b.v.Keys.Identity)}
	})
	b.field(signing.KidMismatch, "another key inside", func(h *signing.Header) { h.Kid = stranger.KeyID() })
}
