package hub

import (
	"context"
	"encoding/json"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/blob"
)

// DefaultMaxWork is how many bytes of what agents have left are kept of each spoke where nothing else is said.
const DefaultMaxWork = 64 << 30

// Work opens what a task has left: the bundle that its result names. NOT_READY = its spoke has not brought it yet.
func (h *Hub) Work(ctx context.Context, text string) (b commands.Bundle, bytes *blob.Reader, err error) {
	a, err := h.Agent(ctx, text, 0, "")
	if err != nil {
		return b, nil, err
	}
	r, ok := commands.ReadResult(a.Result)
	switch {
	case !a.State.Terminal():
		return b, nil, commands.Refuse(commands.NoResult, "agent %s has no result yet: it is %s", commands.ShortID(a.Task), a.State)
	case !ok || r.Bundle == nil:
		return b, nil, commands.Refuse(commands.NotFound, "agent %s has left no commits", commands.ShortID(a.Task)).
			Hinting("what it has left comes back where its order had a working tree of git: spawn --with")
	}
	var order commands.Spawn
	if err := json.Unmarshal(a.Spec, &order); err != nil { // this hub wrote it
		return b, nil, err
	}
	if err := r.Bundle.Answers(&order); err != nil {
		return b, nil, err
	}
	here, err := h.DB.WorkHere(ctx, a.Task, r.Bundle.Blob)
	if err == nil && !here {
		err = commands.Refuse(commands.NoResult, "what agent %s has left is not here yet: its spoke brings it while it is linked", commands.ShortID(a.Task))
	}
	if err != nil {
		return b, nil, err
	}
	digest, err := blob.Parse(r.Bundle.Digest)
	if err == nil {
		bytes, err = h.blobs.Open(digest)
	}
	return *r.Bundle, bytes, err
}
