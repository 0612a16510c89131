package hub

import (
	"time"

	"github.com/spawnmesh/spawnmesh/store"
)

// A Liveness is how old the last heartbeat of a spoke is, in intervals that it announces itself.
type Liveness string

// What a spoke is by its last heartbeat.
const (
	Alive     Liveness = "alive"
	Late      Liveness = "late"
	Stale     Liveness = "stale"
	Dead      Liveness = "dead"
	NeverSeen Liveness = "never seen"
	Ended     Liveness = "ended" // its connection
)

// After how many intervals a spoke is late, stale and dead.
const (
	warnAfter  = 3
	staleAfter = 10
	deadAfter  = 30
)

func livenessOf(age time.Duration, intervalMS int64) Liveness {
	interval := time.Duration(intervalMS) * time.Millisecond
	switch {
	case age < warnAfter*interval:
		return Alive
	case age < staleAfter*interval:
		return Late
	case age < deadAfter*interval:
		return Stale
	}
	return Dead
}

// Heard reports whether heartbeats come, be it late.
func (l Liveness) Heard() bool { return l == Alive || l == Late }

// reached reports whether the connection works here: what is ordered goes out, and the spoke is heard.
func (v SpokeView) reached() bool {
	return v.State == store.Active && v.Linked && v.Liveness.Heard()
}

// current reports whether what a spoke says of its work is of now: it works there, too, and all that it says is kept.
func (v SpokeView) current() bool {
	return v.reached() && v.Says.State == string(store.Active) && !v.Full && v.Differs == ""
}
