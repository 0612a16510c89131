package meshtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// An end has the time that its record says, at the spoke, in the signed result and
// at the hub. The agent can write to the record: a time before the start or after
// now is not believed.
func TestAnEndHasTheTimeOfItsRecord(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Millisecond)
	for name, test := range map[string]struct {
		at       time.Time
		believed bool
	}{
		"after the start":   {now.Add(-30 * time.Minute), true},
		"before the start":  {now.Add(-90 * time.Minute), false},
		"after now":         {now.Add(30 * time.Minute), false},
		"in the year 9999":  {time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), false},
		"not known":         {time.Time{}, false},
		"in the year minus": {time.Date(-4000, 1, 1, 0, 0, 0, 0, time.UTC), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			task := p.Order(t, nil)
			p.toSpoke(t)
			c := p.claim(t, 1)[0]
			p.start(t, c)
			require.NoError(t, p.Spoke.Exec(`UPDATE leases SET started_at = started_at - interval '1 hour'`))

			held, err := p.backlog.Record(t.Context(), []backlog.Progress{{End: &backlog.End{Fence: c.Fence, Outcome: commands.Succeeded, At: test.at}}})
			require.NoError(t, err)
			require.Equal(t, []bool{true}, held)
			reports := p.toHub(t)

			var result *commands.Result
			for _, m := range reports {
				if r, ok := m.Body.(*commands.Result); ok {
					result = r
				}
			}
			here, err := p.backlog.Agent(t.Context(), task)
			require.NoError(t, err)
			there := p.Mirror(t, task)
			require.Equal(t, here.EndedAt.UnixMilli(), result.EndedAt)
			require.Equal(t, result.EndedAt, there.EndedAt.UnixMilli())
			require.Equal(t, test.believed, there.EndedAt.Equal(test.at), "%s", there.EndedAt)
			require.False(t, there.EndedAt.Before(now) != test.believed, "%s", there.EndedAt)
			require.True(t, there.EndedTold.After(now))
			require.Equal(t, reports[0].Header.Iat, there.AcceptedAt.UnixMilli())
			require.False(t, there.AcceptedAt.After(there.StartedAt.Add(time.Hour)), "one clock says both")
		})
	}
}
