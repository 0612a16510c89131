package meshtest

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/federation"
)

// A queue whose messages are not taken is seen by whoever looks, on the side where
// they are not: by its name, since when, and what to do. It is over by itself.
func TestAQueueThatIsNotReadIsSeen(t *testing.T) {
	t.Parallel()
	for side, c := range map[string]struct{ peer, queue string }{
		"hub":   {"attic", "reports"},
		"attic": {"lab", "run"},
	} {
		t.Run("at "+side, func(t *testing.T) {
			t.Parallel()
			m := Plan{StillFor: 300 * time.Millisecond}.Start(t, "attic")
			i := m.instance(t, side)
			standing := func() (found []federation.QueueView) {
				var v struct{ Queues []federation.QueueView }
				i.Do(t, "GET", "/api/v1/connections/"+url.PathEscape(c.peer), nil, &v)
				require.Len(t, v.Queues, 2, "it is told whether they are read or not")
				for _, q := range v.Queues {
					if q.Problem != "" {
						found = append(found, q)
					}
				}
				return found
			}
			require.Empty(t, standing())
			began := time.Now()
			hold, err := i.SQL.Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = hold.Rollback(t.Context()) }() // else a test that fails never ends
			_, err = hold.Exec(t.Context(), `LOCK TABLE inbox IN SHARE MODE`)
			require.NoError(t, err)

			task := m.Noop(t, "attic")

			Await(t, "a queue that stands still", func() bool { return len(standing()) > 0 })
			found := standing()
			require.Len(t, found, 1)
			require.Equal(t, c.queue, found[0].Queue)
			require.Positive(t, found[0].Messages)
			require.WithinRange(t, *found[0].Still, began.Add(-time.Minute), time.Now())
			require.Regexp(t, `^\d+ messages wait, and none was taken since .*: their reader does not take them; its log says why`, found[0].Problem)
			require.Regexp(t, `messages wait, and none was taken since`, i.Health(t, c.queue+" of "+c.peer).Problem, "more of them may wait by now")
			require.NoError(t, hold.Rollback(t.Context()))
			m.Wait(t, task)
			Await(t, "the end of it", func() bool { return len(standing()) == 0 })
		})
	}
}
