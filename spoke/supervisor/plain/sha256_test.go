package plain

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzSHA256(f *testing.F) {
	f.Add([]byte(nil), 0)
	f.Add([]byte("abc"), 1)
	for _, n := range []int{55, 56, 57, 63, 64, 65, 119, 120, 128, 1000} {
		f.Add([]byte(strings.Repeat("x", n)), n/3)
	}
	f.Fuzz(func(t *testing.T, b []byte, at int) {
		at = max(0, min(at, len(b)))
		var d SHA256
		_, _ = d.Write(b[:at])
		require.Equal(t, sha256.Sum256(b[:at]), d.Sum(), "it may go on after a sum")
		_, _ = d.Write(b[at:])

		require.Equal(t, sha256.Sum256(b), d.Sum())

		h := hmac.New(sha256.New, b[:at])
		h.Write(b[at:])
		own := HMAC(b[:at], b[at:])
		require.Equal(t, h.Sum(nil), own[:])
	})
}

// Pieces of any length, as the output of an agent comes.
func TestSHA256OfPieces(t *testing.T) {
	t.Parallel()
	const seed = 17
	r := rand.New(rand.NewPCG(seed, seed))
	for range 200 {
		var own SHA256
		library := sha256.New()
		for range r.IntN(20) {
			piece := make([]byte, r.IntN(300))
			for i := range piece {
				piece[i] = byte(r.Uint32())
			}
			_, _ = own.Write(piece)
			library.Write(piece)
		}
		sum := own.Sum()
		require.Equal(t, library.Sum(nil), sum[:])
	}
}

// FIPS 180-4 and RFC 4231.
func TestKnownDigests(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"abc": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
		"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq": "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
		strings.Repeat("a", 1_000_000):                             "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
	} {
		var d SHA256
		_, _ = d.Write([]byte(text))
		sum := d.Sum()
		require.Equal(t, want, Hex(sum[:]))
	}
	bytes := func(digits string) []byte {
		b, err := hex.DecodeString(digits)
		require.NoError(t, err)
		return b
	}
	for _, c := range []struct {
		key, message []byte
		want         string
	}{
		{bytes(strings.Repeat("0b", 20)), []byte("Hi There"), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
		{[]byte("Jefe"), []byte("what do ya want for nothing?"), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
		{bytes(strings.Repeat("aa", 20)), bytes(strings.Repeat("dd", 50)), "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
		{bytes(strings.Repeat("aa", 131)), []byte("Test Using Larger Than Block-Size Key - Hash Key First"), "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
	} {
		sum := HMAC(c.key, c.message)
		require.Equal(t, c.want, Hex(sum[:]))
	}
}

func TestEqual(t *testing.T) {
	t.Parallel()
	code := HMAC([]byte("k"), []byte("m"))
	require.True(t, Equal(code[:], code[:]))
	require.True(t, Equal(nil, nil))
	require.False(t, Equal(code[:], code[:31]))
	require.False(t, Equal(nil, code[:]))
	for i := range code {
		other := code
		other[i] ^= 1 << (i % 8)
		require.False(t, Equal(code[:], other[:]), i)
	}
}

func BenchmarkSHA256(b *testing.B) {
	piece := make([]byte, 32<<10)
	b.SetBytes(int64(len(piece)))
	var d SHA256
	for b.Loop() {
		_, _ = d.Write(piece)
	}
}
