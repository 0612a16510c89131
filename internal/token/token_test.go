package token

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestATokenIsReadAsItWasMade(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		made := New()
		require.Len(t, made.Text(), 51)
		require.False(t, seen[made.ID] || seen[made.Text()])
		seen[made.ID], seen[made.Text()] = true, true

		read, err := Parse(made.Text())

		require.NoError(t, err)
		require.Equal(t, made, read)
		require.Equal(t, made.Digest(), read.Digest())
	}
}

// Every single change of a text is seen, so that what was mistyped is not looked for.
func TestWhatIsMistypedIsNoToken(t *testing.T) {
	t.Parallel()
	text := New().Text()
	for i := range text {
		for _, c := range "aB3_é " {
			wrong := text[:i] + string(c) + text[i+1:]
			if wrong == text {
				continue
			}
			_, err := Parse(wrong)
			require.ErrorIs(t, err, ErrText, wrong)
		}
		_, err := Parse(text[:i] + text[i+1:])
		require.ErrorIs(t, err, ErrText, "without the character at %d", i)
	}
	for _, wrong := range []string{"", "smt_", text + "\n", " " + text, text + text, strings.ToLower(text), strings.ToUpper(text), "amt_" + text[4:], strings.Repeat("x", 10<<20), "smt_" + strings.Repeat("é", 20)} {
		_, err := Parse(wrong)
		require.ErrorIs(t, err, ErrText, "%.60q", wrong)
	}
}

// Whoever prints a token prints no secret.
func TestATokenIsPrintedWithoutItsSecret(t *testing.T) {
	t.Parallel()
	made := New()
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("made", "token", made)
	for _, said := range []string{log.String(), made.String(), fmt.Sprintf("%v %+v %#v %s", made, made, made, made), fmt.Sprintf("%v", []Token{made})} {
		require.Contains(t, said, made.ID)
		require.NotContains(t, said, made.Text()[17:])
	}
}
