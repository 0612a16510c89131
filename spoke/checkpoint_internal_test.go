package spoke

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store"
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

// A file that the database may name stays.
func TestAFileThatMayCountStays(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		before bool
		err    error
		stays  bool
	}{
		"nothing was committed":         {false, errors.New("no room"), false},
		"it was there before":           {true, errors.New("no room"), true},
		"the commit was not answered":   {false, fmt.Errorf("keeping it: %w: %w", store.ErrCommitUnknown, errors.New("EOF")), true},
		"neither the one nor the other": {true, store.ErrCommitUnknown, true},
	} {
		path := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(path, nil, 0o600))

		putBack(path, tt.before, tt.err)

		_, err := os.Lstat(path)
		require.Equal(t, tt.stays, err == nil, name)
	}
}
