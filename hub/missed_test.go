package hub

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store"
)

// What is due while an order waits for a spoke is an order of its own; what was due while the hub was down, or its database
// did not answer, was missed.
func TestAnOrderThatWaitsForASpokeMissesNothing(t *testing.T) {
	t.Parallel()
	at := func(text string) time.Time {
		v, err := time.Parse("15:04:05", text)
		require.NoError(t, err)
		return v.AddDate(2060, 0, 0)
	}
	for name, c := range map[string]struct {
		any               bool
		due, started, now string
		missed            int
		next              string
	}{
		"a spoke came":                {true, "12:01:00", "08:00:00", "12:01:40", 0, "12:02:00"},
		"no spoke came":               {true, "12:01:00", "08:00:00", "12:02:01", 0, "12:02:00"},
		"a named spoke":               {false, "12:01:00", "08:00:00", "12:02:01", 1, "12:03:00"},
		"the hub was down":            {true, "11:01:00", "12:00:30", "12:01:29", 59, "12:01:00"},
		"the database did not answer": {true, "11:01:00", "08:00:00", "12:01:29", 60, "12:02:00"},
	} {
		due := at(c.due)
		began := time.Now().Add(-at(c.now).Sub(at(c.started)))

		f := (&Hub{}).due(store.Schedule{Name: "often", Cron: "* * * * *", Zone: "UTC", Next: &due, Template: store.Template{Any: c.any}}, at(c.now), began)

		require.Equal(t, c.missed, f.Missed, name)
		require.Equal(t, at(c.next), f.Next, name)
	}
}
