package door

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

// The spoke may read more than its agent: a file that is not the agent's own is no artifact.
func TestArtifactsAreFilesOfTheAgent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, []byte("secret"), 0o600))
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	other := os.Geteuid() + 1

	_, _, err = (&Door{user: other}).digest(t.Context(), root, "file", maxArtifact)
	require.Equal(t, commands.Validation, commands.CodeOf(err))
	require.ErrorContains(t, err, "belongs to another user")

	own := &Door{}
	size, sum, err := own.digest(t.Context(), root, "file", maxArtifact)
	require.NoError(t, err)
	require.Equal(t, int64(6), size)
	require.Len(t, sum, 64)
	_, _, err = own.digest(t.Context(), root, "file", 5)
	require.Equal(t, commands.PayloadTooLarge, commands.CodeOf(err))
	own.described.Store(maxDescribed)
	_, _, err = own.digest(t.Context(), root, "file", maxArtifact)
	require.Equal(t, commands.TooManyRequests, commands.CodeOf(err))
}

// No more is read of a file than was counted: one that grows or shrinks meanwhile is no artifact.
func TestAnArtifactThatGrowsIsRefused(t *testing.T) {
	t.Parallel()
	grown := bytes.NewReader(make([]byte, 1<<20))
	_, err := digestOf(t.Context(), grown, "file", 10)
	require.Equal(t, commands.Conflict, commands.CodeOf(err))
	require.ErrorContains(t, err, "was replaced meanwhile")
	left, err := io.Copy(io.Discard, grown)
	require.NoError(t, err)
	require.EqualValues(t, 1<<20-11, left, "the rest is not read")

	_, err = digestOf(t.Context(), bytes.NewReader(nil), "file", 10)
	require.Equal(t, commands.Conflict, commands.CodeOf(err))
	sum, err := digestOf(t.Context(), bytes.NewReader([]byte("secret")), "file", 6)
	require.NoError(t, err)
	require.Equal(t, "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b", sum)
}
