package spoke

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// Who waits for a hub that is away asks the database seldom, and at once where something has happened.
func TestALongWaitForAHubAsksSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := liveRun()
		told := make(chan backlog.Past, 1)
		require.True(t, s.live.await(r, told))
		looks, past := 0, backlog.Past{Asked: true}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go s.live.look(ctx, func(tasks []string) (map[string]backlog.Past, error) {
			require.Equal(t, []string{"a"}, tasks)
			looks++
			return map[string]backlog.Past{"a": past}, nil
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Less(t, looks, 40)
		require.Greater(t, looks, 25)
		before := looks

		s.live.kill(backlog.KillRun{Fence: r.fence})
		synctest.Wait()

		require.Equal(t, before+1, looks, "a kill is looked for at once")
		past = backlog.Past{Begun: 2}
		s.mayStart()
		synctest.Wait()
		require.Equal(t, past, <-told)
		s.live.awaitsNoMore(r)
		synctest.Wait()
		require.False(t, s.live.looking)
	})
}
