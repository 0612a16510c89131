package layout

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxFile bounds what everybody who clones the repository gets.
const maxFile = 2 << 20

// What is built is not kept: a program is large, and has the paths of the machine that built it.
func TestNothingThatIsBuiltIsKept(t *testing.T) {
	out, err := exec.Command("git", "-C", "../..", "ls-files", "-z").Output()
	require.NoError(t, err, "run the tests in a git checkout")
	names := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	require.Greater(t, len(names), 100)
	for _, name := range names {
		raw, err := os.ReadFile(filepath.Join("../..", name))
		if os.IsNotExist(err) {
			continue // removed, and not committed yet
		}
		require.NoError(t, err)
		require.LessOrEqual(t, len(raw), maxFile, name)
		require.False(t, bytes.HasPrefix(raw, []byte("\x7fELF")), "%s is a program", name)
	}
}
