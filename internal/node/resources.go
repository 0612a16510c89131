package node

import (
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
)

// resources serves the API, a file for each of its resources. A method maps what was asked, calls
// what does it, and maps what came of it.
type resources struct{ n *Node }

// hub is that of this instance, where it is one.
func (s resources) hub() (*hub.Hub, error) {
	if s.n.Hub == nil {
		return nil, commands.Refuse(commands.Validation, "this instance is a spoke; this is asked of its hub").Hinting("name that one with --data-dir, on its host")
	}
	return s.n.Hub, nil
}

// mapped is each of a list as the document has it.
func mapped[From, To any](list []From, one func(From) To) []To {
	out := make([]To, len(list))
	for i, v := range list {
		out[i] = one(v)
	}
	return out
}

// when is a time that may not be, as the document has it: absent where it is zero.
func when(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
