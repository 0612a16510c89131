package supervisor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An agent reads all of its standard input, whatever bytes it is of, and then its end; by its name, too, from
// the start. Nobody changes it.
func TestStandardInput(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"none": "", "bytes": "\x00\xff\n\x1a", "96 KiB": strings.Repeat("\x00\xfe", 48<<10)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			work := t.TempDir()
			spec := sh(`cat >once; cat /dev/stdin >again; (echo x >&0) 2>/dev/null; cat <&0 >rest`)
			spec.Stdin, spec.Dir = text, work

			a, dir := start(t, spec)

			require.Equal(t, Exited, a.Exit().Outcome)
			require.Equal(t, text, read(t, work, "once"))
			require.Equal(t, text, read(t, work, "again"))
			require.Empty(t, read(t, work, "rest"))
			require.NotContains(t, read(t, dir, "spec.json"), `"stdin":`)
		})
	}
}

// It is that of the agent alone and outlives the spoke: an agent that was adopted reads on.
func TestStandardInputOutlivesTheSpoke(t *testing.T) {
	t.Parallel()
	work, dir := t.TempDir(), filepath.Join(t.TempDir(), "attempt")
	spec := sh(`head -c 5 >first; echo ready >ready; until [ -e go ]; do sleep 0.02; done; cat >rest`)
	text := "first" + strings.Repeat("rest", 20<<10)
	spec.Dir, spec.Stdin = work, text
	killedSpoke(t, dir, spec)
	eventually(t, "the first bytes", func() bool { _, err := os.Stat(filepath.Join(work, "ready")); return err == nil })
	a, _, err := Adopt(t.Context(), dir, Known{})
	require.NoError(t, err)
	require.NotNil(t, a)
	endAfter(t, a)

	require.NoError(t, os.WriteFile(filepath.Join(work, "go"), nil, 0o600))

	select {
	case <-a.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the agent waits for more")
	}
	require.Equal(t, "first", read(t, work, "first"))
	require.Equal(t, strings.TrimPrefix(text, "first"), read(t, work, "rest"))
}
