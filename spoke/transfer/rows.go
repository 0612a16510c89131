package transfer

import (
	"context"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/blob"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// lookedAt is how many blobs are looked at: those that are carried at once, and enough of others that the ones of another hub are among them.
const lookedAt = 256

// Rows are what a spoke's backlog wants.
type Rows struct {
	Backlog *backlog.Backlog
	Ended   func(tasks []string) // told of tasks that have ended as their inputs do not come; may be nil
}

// Wanted lists inputs first: agents wait for them.
func (r Rows) Wanted(ctx context.Context) (list []Blob, err error) {
	inputs, err := r.Backlog.Wanted(ctx, lookedAt)
	if err != nil {
		return nil, err
	}
	due, err := r.Backlog.Due(ctx, lookedAt)
	if err != nil {
		return nil, err
	}
	for i, w := range append(inputs, due...) {
		d, err := blob.Parse(w.Digest)
		if err != nil {
			return nil, err
		}
		list = append(list, Blob{Conn: w.Conn, Digest: d, Size: w.Size, Put: i >= len(inputs)})
	}
	return list, nil
}

// Done lets tasks go on that have waited for b, or has what they left confirmed.
func (r Rows) Done(ctx context.Context, b Blob) error {
	if b.Put {
		_, err := r.Backlog.Brought(ctx, b.wanted(), true)
		return err
	}
	return r.Backlog.InputCame(ctx, b.wanted())
}

// Failed ends the tasks that wait for b, or keeps what they have left here.
func (r Rows) Failed(ctx context.Context, b Blob, why error) error {
	if b.Put {
		_, err := r.Backlog.Brought(ctx, b.wanted(), false)
		return err
	}
	done, err := r.Backlog.InputLost(ctx, b.wanted(), why.Error())
	if err == nil && len(done) > 0 && r.Ended != nil {
		r.Ended(done)
	}
	return err
}

func (b Blob) wanted() backlog.Wanted {
	return backlog.Wanted{Conn: b.Conn, Blob: commands.Blob{Digest: b.Digest.String(), Size: b.Size}}
}
