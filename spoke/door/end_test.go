package door

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

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

// What all artifacts of one word have together is bounded, and not each alone.
func TestArtifactsAreBoundedTogether(t *testing.T) {
	t.Parallel()
	d := &Door{heavy: make(chan struct{}, 1), room: Room{Work: t.TempDir(), Hide: func(text string) string { return text }}}
	for name, size := range map[string]int64{"log": 6, "image": maxArtifact} {
		file := filepath.Join(d.room.Work, name)
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		require.NoError(t, os.Truncate(file, size))
	}

	_, err := d.describe(t.Context(), []Named{{Name: "log", Path: "log"}, {Name: "image", Path: "image"}})

	require.Equal(t, commands.PayloadTooLarge, commands.CodeOf(err))
}

// However long an agent asks to wait for an answer, one request is bounded.
func TestHowLongAnAgentWaits(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"": longestWait, "0s": 0, "5s": 5 * time.Second, "30s": longestWait, "31s": longestWait, "9000h": longestWait} {
		got, err := waitOf(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"-1s", "30", "soon"} {
		_, err := waitOf(text)
		require.Equal(t, commands.Validation, commands.CodeOf(err), text)
	}
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
