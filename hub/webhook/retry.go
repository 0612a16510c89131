package webhook

import (
	"time"

	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/store"
)

const (
	// longestHold is how long a webhook that fails waits for the next probe at most: one that is back is told within this time.
	longestHold = time.Hour
	// longestAsked is how long a receiver may have all that is sent to it wait.
	longestAsked = 24 * time.Hour
	// patience is for how long a webhook fails until it is disabled.
	patience = 3 * 24 * time.Hour
)

// pauses are the times between two tries.
var pauses = []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 12 * time.Hour, 24 * time.Hour}

// mostTries is how often a delivery is tried.
var mostTries = len(pauses) + 1

// pause is how long is waited after try n.
func pause(n int) time.Duration { return wait.Spread(pauses[min(max(n, 1), len(pauses))-1]) }

// hold is how long nothing is sent to a webhook after so many failures in a row, the last of which asked for a pause.
func hold(failures int, asked time.Duration) time.Duration {
	asked = min(asked, longestAsked)
	if failures < store.BreakAfter {
		return asked
	}
	return max(asked, min(pause(failures-store.BreakAfter+1), longestHold))
}
