package signing

import (
	"bytes"
	"crypto/ecdh"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

const sealedPath = "testdata/sealed.json"

// A sealedFile is testdata/sealed.json; docs/protocol.md says what its fields mean.
type sealedFile struct {
	PrivateHex string       `json:"private_hex"`
	PublicHex  string       `json:"public_hex"`
	Key        SealingKeyID `json:"key"`
	Cases      []sealedCase `json:"cases"`
	Weak       []string     `json:"weak_public_hex"`
}

type sealedCase struct {
	Name    string       `json:"name"`
	Expect  string       `json:"expect"`
	Key     SealingKeyID `json:"key"`
	Aud     InstanceID   `json:"aud"`
	Conn    string       `json:"conn"`
	Message string       `json:"message"`
	Field   string       `json:"field"`
	AADHex  string       `json:"aad_hex"`
	Box     []byte       `json:"box"`
	Plain   string       `json:"plaintext"`
}

func sealingKey(t testing.TB) *Decrypter {
	t.Helper()
	private, err := ecdh.X25519().NewPrivateKey(bytes.Repeat([]byte{0x5e}, 32))
	require.NoError(t, err)
	d, err := NewDecrypter(private)
	require.NoError(t, err)
	return d
}

var (
	vectorPlace = Place{"mi1aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "0193a3c0-2222-7aaa-8bbb-00000000000b", "0193a3c0-1111-7aaa-8bbb-00000000000a", "env"}
	vectorAAD   = []byte("TOKEN\x00secret\x00CI\x00\x00")
	vectorPlain = `["s3cr\u00e9t-value","1"]`

	// Of a variable, the file in/data.bin, the file run.sh that can be executed, and standard input.
	inlineAAD   = []byte("KEY\x00secret\x00" + "\x00in/data.bin\x00\x00" + "\x00run.sh\x00x\x00" + "\x00\x00")
	inlinePlain = `["hunter2","AP+A","IyEvYmluL3NoCg==","AQID"]`
)

// sealedRecipes are the cases: one ciphertext, what differs from its place, and one with files.
func sealedRecipes(t *testing.T, d *Decrypter, box, inline []byte) []sealedCase {
	good := sealedCase{"good", "OK", d.KeyID(), vectorPlace.Aud, vectorPlace.Conn, vectorPlace.Message, vectorPlace.Field, hex.EncodeToString(vectorAAD), box, vectorPlain}
	list := []sealedCase{good}
	for _, v := range []struct {
		name   string
		change func(*sealedCase)
	}{
		{"for another instance", func(c *sealedCase) { c.Aud = "mi1baaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" }},
		{"of another connection", func(c *sealedCase) { c.Conn = "0193a3c0-2222-7aaa-8bbb-00000000000c" }},
		{"of another message", func(c *sealedCase) { c.Message = "0193a3c0-1111-7aaa-8bbb-00000000000b" }},
		{"of another field", func(c *sealedCase) { c.Field = "title" }},
		{"for other names", func(c *sealedCase) { c.AADHex = hex.EncodeToString([]byte("CI\x00secret\x00TOKEN\x00\x00")) }},
		{"for a key that the instance does not have", func(c *sealedCase) { c.Key = SealingKeyIDOf([]byte("another")) }},
		{"with one bit of the key share flipped", func(c *sealedCase) { c.Box = bytes.Clone(box); c.Box[3] ^= 1 }},
		{"with one bit of the ciphertext flipped", func(c *sealedCase) { c.Box = bytes.Clone(box); c.Box[40] ^= 1 }},
		{"with one byte too few", func(c *sealedCase) { c.Box = box[:len(box)-1] }},
		{"of 47 bytes", func(c *sealedCase) { c.Box = box[:47] }},
		{"with a key share of zeros", func(c *sealedCase) { c.Box = append(make([]byte, 32), box[32:]...) }},
		{"empty", func(c *sealedCase) { c.Box = []byte{} }},
	} {
		c := good
		c.Name, c.Expect, c.Plain = v.name, string(SealOpen), ""
		v.change(&c)
		list = append(list, c)
	}
	files := good
	files.Name, files.AADHex, files.Box, files.Plain = "good, with files and standard input", hex.EncodeToString(inlineAAD), inline, inlinePlain
	return append(list, files)
}

func TestSealedVectors(t *testing.T) {
	d := sealingKey(t)
	if *update {
		box, err := Encrypt(d.Public(), vectorPlace, vectorAAD, []byte(vectorPlain))
		require.NoError(t, err)
		inline, err := Encrypt(d.Public(), vectorPlace, inlineAAD, []byte(inlinePlain))
		require.NoError(t, err)
		f := sealedFile{hex.EncodeToString(bytes.Repeat([]byte{0x5e}, 32)), hex.EncodeToString(d.Public()), d.KeyID(), sealedRecipes(t, d, box, inline), nil}
		for _, k := range lowOrder {
			f.Weak = append(f.Weak, hex.EncodeToString(k))
		}
		raw, err := json.MarshalIndent(f, "", " ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(sealedPath, append(raw, '\n'), 0o644))
	}
	raw, err := os.ReadFile(sealedPath)
	require.NoError(t, err)
	var f sealedFile
	require.NoError(t, json.Unmarshal(raw, &f))
	require.Equal(t, d.KeyID(), f.Key)
	require.Equal(t, sealedRecipes(t, d, f.Cases[0].Box, f.Cases[len(f.Cases)-1].Box), f.Cases, "run: go test ./signing -run TestSealedVectors -update")
	for _, c := range f.Cases {
		t.Run(c.Name, func(t *testing.T) {
			aad, err := hex.DecodeString(c.AADHex)
			require.NoError(t, err)

			plain, got := d.Open(c.Key, Place{c.Aud, c.Conn, c.Message, c.Field}, aad, c.Box)

			require.Equal(t, c.Expect, codeOf(got), "%v", got)
			require.Equal(t, c.Plain, string(plain))
		})
	}
	for _, weak := range f.Weak {
		require.Equal(t, string(KeyWeak), codeOf(AdmitSealingKey(unhex(weak))), weak)
	}
}

// Nobody is made to encrypt with a key whose every exchange gives zero.
func TestWeakSealingKeysAreRefused(t *testing.T) {
	weak := [][]byte{nil, make([]byte, 31), make([]byte, 33), bytes.Repeat([]byte{0xff}, 32)}
	for _, k := range lowOrder {
		high := bytes.Clone(k)
		high[31] |= 0x80
		weak = append(weak, k, high)
	}
	above := sealingKey(t).Public()
	above = append(bytes.Clone(above[:31]), above[31]|0x80)
	for _, k := range append(weak, above) {
		_, err := Encrypt(k, vectorPlace, nil, nil)
		require.Equal(t, string(KeyWeak), codeOf(err), "%x", k)
	}
	require.NoError(t, AdmitSealingKey(sealingKey(t).Public()))
}

func TestEncryptingTwiceGivesNothingTheSame(t *testing.T) {
	d := sealingKey(t)
	a, err := Encrypt(d.Public(), vectorPlace, nil, []byte("value"))
	require.NoError(t, err)
	b, err := Encrypt(d.Public(), vectorPlace, nil, []byte("value"))
	require.NoError(t, err)
	require.NotEqual(t, a[:32], b[:32])
	require.NotEqual(t, a[32:], b[32:])
	require.Len(t, a, len("value")+EncryptOverhead)
}

func TestMarksAreTheOwners(t *testing.T) {
	d := sealingKey(t)
	private, err := ecdh.X25519().NewPrivateKey(bytes.Repeat([]byte{0x5f}, 32))
	require.NoError(t, err)
	other, err := NewDecrypter(private)
	require.NoError(t, err)
	require.Equal(t, d.Mark([]byte("value")), d.Mark([]byte("value")))
	require.NotEqual(t, d.Mark([]byte("value")), d.Mark([]byte("valuf")))
	require.NotEqual(t, d.Mark([]byte("value")), other.Mark([]byte("value")))
}

func TestDecryptersDoNotShowTheirKey(t *testing.T) {
	d := sealingKey(t)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		require.Equal(t, string(d.KeyID()), fmt.Sprintf(verb, d))
	}
}

func BenchmarkEncrypt(b *testing.B) {
	d := sealingKey(b)
	for b.Loop() {
		if _, err := Encrypt(d.Public(), vectorPlace, vectorAAD, []byte(vectorPlain)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecrypt(b *testing.B) {
	d := sealingKey(b)
	box, err := Encrypt(d.Public(), vectorPlace, vectorAAD, []byte(vectorPlain))
	require.NoError(b, err)
	for b.Loop() {
		if _, err := d.Open(d.KeyID(), vectorPlace, vectorAAD, box); err != nil {
			b.Fatal(err)
		}
	}
}
