package meshtest

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub/api"
)

// Many requests with one key at once are one order, whichever comes first, and each of them is told which.
func TestAKeyThatManyUseAtOnce(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	d := m.Hub.describe(t)
	for round := range 5 {
		var mu sync.Mutex
		ids, fresh := map[string]bool{}, 0
		m.atOnce(10, func() {
			var made api.TaskCreated
			status, said := d.keyed(t, "POST", "/tasks", fmt.Sprint("key", round), `{"runtime":"noop","spoke":"attic"}`, &made)
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, http.StatusOK, status, said)
			ids[made.ID] = true
			if !made.Existing {
				fresh++
			}
		})
		require.Len(t, ids, 1)
		require.Equal(t, 1, fresh)
	}
	require.Equal(t, 5, m.Hub.Count(t, `SELECT count(*) FROM mirrors`))
}
