package plain

import (
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the library does with text that a shim meets.
func TestTextAsTheLibrary(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", " ", "a", "a b", "  a\tb \n c\n", "a - b - c", " - ", "- ", "line\n\nline", "\n", "a\n"} {
		require.Equal(t, append([]string{}, strings.Fields(s)...), append([]string{}, Fields(s)...), "%q", s)
		for _, separator := range []string{" - ", " ", "a", "\n", "absent"} {
			b1, a1, ok1 := strings.Cut(s, separator)
			b2, a2, ok2 := Cut(s, separator)
			require.Equal(t, []any{b1, a1, ok1}, []any{b2, a2, ok2}, "%q at %q", s, separator)
			r1, ok1 := strings.CutPrefix(s, separator)
			r2, ok2 := CutPrefix(s, separator)
			require.Equal(t, []any{r1, ok1}, []any{r2, ok2}, "%q after %q", s, separator)
		}
		var lines []string
		for line := range strings.Lines(s) {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
		require.Equal(t, lines, Lines(s), "%q", s)
	}
	for _, dir := range []string{"/", "/a", "/a/", "."} {
		require.Equal(t, filepath.Clean(dir+"/x"), filepath.Clean(Join(dir, "x")))
		require.NotContains(t, Join(dir, "x"), "//")
	}
	require.Equal(t, "00ff1a", Hex([]byte{0, 255, 26}))
}

func TestWrap(t *testing.T) {
	t.Parallel()
	err := Wrap("reading", errors.Join(io.EOF, io.ErrClosedPipe))

	require.NoError(t, Wrap("reading", nil))
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.ErrorContains(t, err, "reading: EOF")
}
