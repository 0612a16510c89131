package node

import (
	"math"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/store/backlog"
	"github.com/spawnmesh/spawnmesh/store/messages"
)

// resources serves the API, a file for each of its resources. A method maps what was asked, calls
// what does it, and maps what came of it.
type resources struct {
	n       *Node
	desk    spoke.Desk // of the spoke, where this instance is one
	backlog *backlog.Backlog
	log     *messages.Log
}

// hub is that of this instance, where it is one.
func (s resources) hub() (*hub.Hub, error) {
	if s.n.Hub == nil {
		return nil, s.askedOf("its hub")
	}
	return s.n.Hub, nil
}

// spoke is that of this instance, where it is one.
func (s resources) spoke() (*spoke.Spoke, error) {
	if s.n.Spoke == nil {
		return nil, s.askedOf("its spokes")
	}
	return s.n.Spoke, nil
}

// askedOf refuses what only another instance can do.
func (s resources) askedOf(who string) error {
	role := "spoke"
	if s.n.Hub != nil {
		role = "hub"
	}
	return commands.Refuse(commands.Validation, "this instance is a %s; this is asked of %s", role, who).Hinting("ask that instance itself: on its host, or at its own address")
}

// mapped is each of a list as the document has it.
func mapped[From, To any](list []From, one func(From) To) []To {
	out := make([]To, len(list))
	for i, v := range list {
		out[i] = one(v)
	}
	return out
}

// milliseconds is a duration of the document.
func milliseconds(ms int64) time.Duration { return times(ms, time.Millisecond) }

// times is n units, or the longest time: what is more would be another one.
func times(n int64, unit time.Duration) time.Duration {
	most := int64(math.MaxInt64 / unit)
	return time.Duration(min(max(n, -most), most)) * unit
}

// when is a time that may not be, as the document has it: absent where it is zero.
func when(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
