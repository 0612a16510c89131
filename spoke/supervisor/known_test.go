package supervisor

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
)

// Whatever an agent writes into the spec of its attempt, or puts in the place of its
// socket, before it ends its shim: an adoption ends its tree, and nobody else's.
func TestAdoptionBelievesItsCallerOnly(t *testing.T) {
	t.Parallel()
	innocent, other := start(t, sh("sleep 600"))
	spec := func(what string) string { return fmt.Sprintf(`sed -i 's/}$/,%s}/' "$0/spec.json"; `, what) }
	const keepsLock = `setsid flock "$0/lock" sleep 600 & until grep -Eq -e "-> FLOCK +ADVISORY +WRITE $! " /proc/locks; do sleep 0.01; done; `
	tests := map[string]string{
		"another boot":                    spec(`"boot_id":"00000000-0000-0000-0000-000000000000"`),
		"the marker of another":           spec(`"marker":"` + innocent.Marker() + `"`),
		"the spec and socket of another":  keepsLock + fmt.Sprintf(`cp "%[1]s/spec.json" "$0"; ln -f "%[1]s/sock" "$0/sock"; `, other),
		"a link to the socket of another": keepsLock + fmt.Sprintf(`cp "%[1]s/spec.json" "$0"; ln -sf "%[1]s/sock" "$0/sock"; `, other),
	}
	t.Run("each", func(t *testing.T) {
		for name, before := range tests {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s, dir, file := escaping(t, before+":")
				killedSpoke(t, dir, s)
				child := escaped(t, dir, file)

				var exit *Exit
				eventually(t, "an end", func() bool {
					_, x, err := Adopt(t.Context(), dir, Known{})
					exit = x
					return err == nil && x != nil
				})

				require.Equal(t, Lost, exit.Outcome)
				require.NotContains(t, exit.Reason, "restarted")
				require.False(t, alive(child))
			})
		}
	})
	require.True(t, alive(innocent.Pid()))
	require.NoFileExists(t, filepath.Join(other, attempt.ExitFile))
}

// An agent cannot take its timeout out of what an adoption knows of it.
func TestAdoptionKnowsTheTimeout(t *testing.T) {
	t.Parallel()
	_, dir := start(t, sh("sleep 600"))

	b, _ := adoptKnown(t, dir, Known{Timeout: 1})

	require.NotNil(t, b.overdue)
	require.LessOrEqual(t, b.patience(), b.saved.KillGrace()+attempt.KillPatience+shimPatience)
}
