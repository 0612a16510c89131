package backlog

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/store"
)

// An Output is output of one attempt that the hub that asked for the task does not
// have all of yet. The bytes are in the attempt's files.
type Output struct {
	Fence   Fence  // Epoch is that of the claim, or of the task where that was not told
	Conn    string // with the hub
	Asked   Asked
	Streams [2]Sent // of standard output and standard error
}

// Sent is how much of a stream the hub has on disk, as it says.
type Sent struct {
	Through int64 // bytes
	Ended   bool  // and that nothing follows them
}

// All reports whether the hub has all of it.
func (o Output) All() bool { return o.Streams[0].Ended && o.Streams[1].Ended }

// KeepOutput remembers that there is output of attempts to be sent, of those that
// a hub asked for over a connection that has not ended, and returns what is known
// of the output of their tasks. Who calls it before the end of an attempt is
// recorded finds the output again after a crash.
func (b *Backlog) KeepOutput(ctx context.Context, fences []Fence) ([]Output, error) {
	f := fencesOf(fences, func(f Fence) Fence { return f })
	err := b.db.Tx(ctx, "remembering output to be sent", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Exec(ctx, statement("keep_output"), f.task, f.attempt, f.epoch)
		return err
	})
	if err != nil {
		return nil, err
	}
	return b.unsentOutput(ctx, f.task)
}

// UnsentOutput returns all output that is to be sent.
func (b *Backlog) UnsentOutput(ctx context.Context) ([]Output, error) {
	return b.unsentOutput(ctx, nil)
}

func (b *Backlog) unsentOutput(ctx context.Context, tasks []string) (list []Output, err error) {
	err = b.db.Read(ctx, "reading which output is to be sent", func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, statement("unsent_output"), tasks)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (o Output, err error) {
			out, errs := &o.Streams[0], &o.Streams[1]
			err = row.Scan(&o.Fence.Task, &o.Fence.Attempt, &o.Fence.Epoch, &o.Conn, &o.Asked.Command, &o.Asked.Digest, &out.Through, &errs.Through, &out.Ended, &errs.Ended)
			return o, err
		})
		return err
	})
	return list, err
}

// OutputSent remembers how far the hub has the output of attempts, and forgets
// those of which it has all, and those in given, which it does not want.
func (b *Backlog) OutputSent(ctx context.Context, list []Output, given []Fence) error {
	var out, errs []int64
	var outEnded, errEnded []bool
	for _, o := range list {
		out, errs = append(out, o.Streams[0].Through), append(errs, o.Streams[1].Through)
		outEnded, errEnded = append(outEnded, o.Streams[0].Ended), append(errEnded, o.Streams[1].Ended)
		if o.All() {
			given = append(given, o.Fence)
		}
	}
	f, over := fencesOf(list, func(o Output) Fence { return o.Fence }), fencesOf(given, func(f Fence) Fence { return f })
	return b.db.Tx(ctx, "remembering how much output was sent", func(ctx context.Context, tx *store.Tx) error {
		if _, err := tx.Exec(ctx, statement("move_output"), f.task, f.attempt, out, errs, outEnded, errEnded); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, statement("drop_output"), over.task, over.attempt)
		return err
	})
}

// DropOutput forgets the output for connections that have ended: nobody wants it.
func (b *Backlog) DropOutput(ctx context.Context) error {
	return b.db.Tx(ctx, "forgetting output for ended connections", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Exec(ctx, statement("drop_output_of_ended"))
		return err
	})
}
