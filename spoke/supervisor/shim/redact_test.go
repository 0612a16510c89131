package shim

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// through sends a stream through a redactor in pieces, cut where cuts says.
func through(texts []string, stream string, cuts func(left int) int) string {
	r := newRedactor(texts)
	var out bytes.Buffer
	keep := func(b []byte) { out.Write(b) }
	for len(stream) > 0 {
		n := min(max(1, cuts(len(stream))), len(stream))
		r.put([]byte(stream[:n]), keep)
		stream = stream[n:]
	}
	r.end(keep)
	return out.String()
}

// plainly is the same, said simply: each byte that a text covers is taken out.
func plainly(texts []string, stream string) string {
	hidden := make([]bool, len(stream))
	for _, text := range texts {
		for at := range stream {
			if strings.HasPrefix(stream[at:], text) {
				for i := range text {
					hidden[at+i] = true
				}
			}
		}
	}
	var out strings.Builder
	for i, h := range hidden {
		if h && (i == 0 || !hidden[i-1]) {
			out.WriteString(redacted)
		} else if !h {
			out.WriteByte(stream[i])
		}
	}
	return out.String()
}

func TestSecretsAreTakenOutOfAStream(t *testing.T) {
	for name, tt := range map[string]struct{ stream, want string }{
		"nothing to hide":                 {"hello\n", "hello\n"},
		"a secret":                        {"a hunter2! b", "a [redacted] b"},
		"twice":                           {"hunter2! hunter2!", "[redacted] [redacted]"},
		"one behind the other":            {"hunter2!hunter2!x", "[redacted]x"},
		"the beginning of one at the end": {"say hunter2", "say hunter2"},
		"one that only begins":            {"hunter3 hunter2?", "hunter3 hunter2?"},
		"a longer one":                    {"hunter2!-and-more", "[redacted]"},
		"two that overlap":                {"xabcabcabx", "x[redacted]x"},
		"one that is all":                 {"hunter2!", "[redacted]"},
		"none":                            {"", ""},
		"bytes that are no text":          {"\xff\x00hunter2!\xfe", "\xff\x00[redacted]\xfe"},
	} {
		texts := []string{"hunter2!", "hunter2!-and-more", "abcabc", "cabcab"}
		for piece := range 9 {
			require.Equal(t, tt.want, through(texts, tt.stream, func(int) int { return piece + 1 }), "%s, %d bytes at a time", name, piece+1)
		}
	}
}

// Wherever a stream is cut, the same is taken out of it.
func TestNoCutLetsASecretThrough(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		letters := rapid.StringOfN(rapid.SampledFrom([]rune("ab")), 1, 6, -1)
		texts := rapid.SliceOfN(letters, 1, 4).Draw(t, "texts")
		stream := rapid.StringOfN(rapid.SampledFrom([]rune("abc")), 0, 60, -1).Draw(t, "stream")
		seed := rapid.Uint64().Draw(t, "cuts")
		r := rand.New(rand.NewPCG(seed, seed))

		got := through(texts, stream, func(left int) int { return 1 + r.IntN(left) })

		require.Equal(t, plainly(texts, stream), got)
	})
}

// What cannot be a secret any more is passed on at once: who follows an agent does not wait.
func TestLittleIsHeldBack(t *testing.T) {
	r := newRedactor([]string{"hunter2!"})
	var out bytes.Buffer
	r.put([]byte("Password? "), func(b []byte) { out.Write(b) })
	require.Equal(t, "Password? ", out.String())
	r.put([]byte("hunter"), func(b []byte) { out.Write(b) })
	require.Equal(t, "Password? ", out.String())
	require.Len(t, r.held, 6)
	r.put([]byte("-gatherer"), func(b []byte) { out.Write(b) })
	require.Equal(t, "Password? hunter-gatherer", out.String())
	require.Empty(t, r.held)
}

// The table of what is taken out is built once, and not for each text.
func TestTheTextsToTakeOutAreReadOnce(t *testing.T) { // not parallel: it counts allocations
	var texts []string
	for b := range 200 {
		texts = append(texts, string([]byte{byte(b)})+"secret")
	}
	hide := Redacting(texts)
	require.Equal(t, "a [redacted] b", hide("a "+texts[7]+" b"))
	require.Equal(t, "as it is", Redacting(nil)("as it is"))
	require.Less(t, testing.AllocsPerRun(100, func() { hide("1") }), 20.0)
}

func BenchmarkRedact(b *testing.B) {
	texts := make([]string, 60)
	for i := range texts {
		text := make([]byte, 40)
		for j := range text {
			text[j] = "abcdefghijklmnopqrstuvwxyz0123456789"[rand.IntN(36)]
		}
		texts[i] = string(text)
	}
	piece := bytes.Repeat([]byte("the quick brown fox jumps over the lazy dog 0123456789\n"), 600)[:32<<10]
	for name, list := range map[string][]string{"none": nil, "sixty": texts} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(piece)))
			r := newRedactor(list)
			for b.Loop() {
				r.put(piece, func([]byte) {})
			}
		})
	}
}
