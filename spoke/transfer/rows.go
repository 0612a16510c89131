package transfer

import (
	"context"
	"maps"
	"slices"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/blob"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// lookedAt is for how many tasks of a connection it is looked at what they want: those of the blobs that are carried at once, and enough others
// where some have to wait.
const lookedAt = 64

// Rows are what a spoke's backlog wants.
type Rows struct {
	Backlog *backlog.Backlog
	Hubs    func() map[string]string // that can be reached now, by connection, and how they name what they hold
	Ended   func(tasks []string)     // told of tasks that have ended as their inputs do not come; may be nil

	named map[string]string // what hubs were last offered all for; of who asks what is wanted
}

// Wanted lists inputs first: agents wait for them.
func (r *Rows) Wanted(ctx context.Context) (list []Blob, err error) {
	hubs := r.Hubs()
	conns := slices.Sorted(maps.Keys(hubs))
	if err := r.offer(ctx, hubs); err != nil {
		return nil, err
	}
	inputs, err := r.Backlog.Wanted(ctx, conns, lookedAt)
	if err != nil {
		return nil, err
	}
	due, err := r.Backlog.Due(ctx, conns, lookedAt)
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

// offer has what hubs held offered to them again that may have lost some.
func (r *Rows) offer(ctx context.Context, hubs map[string]string) error {
	for conn, name := range hubs {
		if name == "" || r.named[conn] == name {
			continue
		}
		if err := r.Backlog.OfferAgain(ctx, conn, name); err != nil {
			return err
		}
		if r.named == nil {
			r.named = map[string]string{}
		}
		r.named[conn] = name
	}
	return nil
}

// Done lets tasks go on that have waited for b, or has what they left confirmed.
func (r *Rows) Done(ctx context.Context, b Blob) error {
	if b.Put {
		_, err := r.Backlog.Brought(ctx, b.wanted(), true)
		return err
	}
	return r.Backlog.InputCame(ctx, b.wanted())
}

// Failed ends the tasks that wait for b, or keeps what they have left here.
func (r *Rows) Failed(ctx context.Context, b Blob, why error) error {
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
