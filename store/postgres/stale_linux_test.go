package postgres

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The number was that of a server when it was looked up, and is another process's by the time the signal is sent.
func TestSignalIsForServersOfThisClusterOnly(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	other := exec.Command("cat")
	other.Dir = data
	stdin, err := other.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, other.Start())

	require.NoError(t, signalServer(other.Process.Pid, data, syscall.SIGINT))

	require.NoError(t, stdin.Close())
	require.NoError(t, other.Wait(), "it ends by the end of its input, not by a signal")
}
