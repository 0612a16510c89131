package supervisor

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
)

// One look at this host finds whichever of many attempts has something here.
func TestWhichAttemptLives(t *testing.T) {
	t.Parallel()
	attempts := map[string]int{}
	for n := 1; n <= 1000; n++ {
		attempts[newMarker()] = n
	}
	mark := newMarker()
	attempts[mark] = 77
	left := exec.Command("/bin/sleep", "600")
	left.Env = append(os.Environ(), attempt.MarkerName+"="+newMarker())
	require.NoError(t, left.Start())
	defer func() { _ = left.Process.Kill(); _ = left.Wait() }()
	n, err := AnyLives(attempts)
	require.NoError(t, err)
	require.Zero(t, n, "it is of another attempt")
	marked := exec.Command("/bin/sleep", "600")
	marked.Env = append(os.Environ(), attempt.MarkerName+"="+mark)
	require.NoError(t, marked.Start())
	defer func() { _ = marked.Process.Kill(); _ = marked.Wait() }()

	n, err = AnyLives(attempts)

	require.NoError(t, err)
	require.Equal(t, 77, n)
}
