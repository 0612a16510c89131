package spoke

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A checkpoint that is not what was kept is none, whatever name its file has.
func TestASpoiltCheckpointIsNotRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kept, c, err := writeDraft(dir, bytes.NewReader([]byte("kept")))
	require.NoError(t, err)
	other, _, err := writeDraft(dir, bytes.NewReader([]byte("lost")))
	require.NoError(t, err)

	data, err := readCheckpoint(kept, c.Digest)
	require.NoError(t, err)
	require.Equal(t, "kept", string(data))
	_, err = readCheckpoint(other, c.Digest)
	require.ErrorContains(t, err, filepath.Base(other)+" is not what was kept")
}
