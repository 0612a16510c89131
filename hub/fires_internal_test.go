package hub

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What may run on any spoke waits for one a minute after it was due, and a minute after the start of the hub, which nobody has
// dialled before.
func TestHowLongAScheduleWaitsForASpoke(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		due, ran time.Duration
		waits    bool
	}{
		"it is due now":                     {0, time.Hour, true},
		"the hub was away when it was due":  {time.Hour, time.Second, true},
		"all has just begun":                {time.Second, time.Second, true},
		"nobody has come for a minute":      {time.Minute, time.Hour, false},
		"nobody has come since it is there": {time.Hour, time.Minute, false},
	} {
		require.Equal(t, c.waits, spokesMayCome(c.due, c.ran), name)
	}
}
