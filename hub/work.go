package hub

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"strconv"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/blob"
)

// DefaultMaxWork is how many bytes of what agents have left are kept of each spoke where nothing else is said.
const DefaultMaxWork = 64 << 30

// Work opens what a task has left: the bundle that its result names. NO_RESULT = its spoke has not brought it yet, or is to bring it again.
func (h *Hub) Work(ctx context.Context, text string) (b commands.Bundle, bytes io.ReadCloser, err error) {
	a, err := h.Agent(ctx, text, 0, "")
	if err != nil {
		return b, nil, err
	}
	r, ok := commands.ReadResult(a.Result)
	switch {
	case !a.State.Terminal() && !a.Reviewed():
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
		err = commands.Refuse(commands.NoResult, "what agent %s has left is not here: its spoke brings it while it is linked and has it", commands.ShortID(a.Task))
	}
	if err != nil {
		return b, nil, err
	}
	digest, err := blob.Parse(r.Bundle.Digest)
	if err != nil {
		return b, nil, err
	}
	read, err := h.blobs.Open(digest)
	if errors.Is(err, fs.ErrNotExist) {
		if err = h.lost(ctx, a.Task, r.Bundle.Blob); err == nil {
			err = commands.Refuse(commands.NoResult, "the bytes of what agent %s has left are not on this hub's disk any more: its spoke brings them again while it is linked and has them", commands.ShortID(a.Task))
		}
	}
	return *r.Bundle, workReader{read, func() error { return h.lost(ctx, a.Task, r.Bundle.Blob) }}, err
}

// lost has spokes offer once more what they have brought.
func (h *Hub) lost(ctx context.Context, task string, b commands.Blob) error {
	was, err := h.DB.WorkLost(ctx, task, b)
	if err != nil || !was {
		return err
	}
	h.Log.WarnContext(ctx, "what an agent has left is lost or damaged on this hub's disk; its spoke is to bring it again", "id", task, "blob", b.Digest)
	return h.blobs.Renew()
}

// A workReader reads what a task has left. Where its bytes are not those of their digest that is noted.
type workReader struct {
	*blob.Reader
	damaged func() error
}

func (r workReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if errors.Is(err, blob.ErrDamaged) {
		err = errors.Join(err, r.damaged())
	}
	return n, err
}

// holds names what this hub holds of what spokes have brought: it changes where some may be lost, on the disk or with the database.
func (h *Hub) holds() string {
	era := h.era.Load()
	if era == 0 {
		return "" // it is not known yet
	}
	return h.blobs.Mark() + "." + strconv.FormatInt(era, 10)
}
