package spoke

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is removed beside the checkpoint that counts is no other one that is being written.
func TestADraftOutlivesWhatIsRemovedBesideIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, c, err := writeDraft(dir, strings.NewReader("counts"))
	require.NoError(t, err)
	draft, _, err := writeDraft(dir, strings.NewReader("comes"))
	require.NoError(t, err)
	counts, old := filepath.Join(dir, c.Digest), filepath.Join(dir, "old")
	for _, path := range []string{counts, old} {
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	}

	removeBut(dir, c.Digest)

	require.FileExists(t, draft)
	require.FileExists(t, counts)
	require.NoFileExists(t, old)
}
