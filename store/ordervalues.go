package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// The values of an order's environment are nowhere in the database as they are. In the
// message they are encrypted to the spoke, and this hub cannot read them back. Where the hub
// may have to choose another spoke, it keeps them encrypted to itself until one has taken the
// order.

// markValues marks the spawns of orders that have values, so that an order is known again.
func (db *DB) markValues(orders []SpawnOrder) (err error) {
	for i, o := range orders {
		if len(o.Values) == 0 {
			continue
		}
		if db.sealing == nil {
			return errors.New("this instance has no sealing key to order values with")
		}
		if orders[i].Spawn, err = o.Spawn.Marked(db.sealing, o.Values); err != nil {
			return err
		}
	}
	return nil
}

// A valued is a spawn that is to be sent with values.
type valued struct {
	draft  *Draft
	values commands.Values
}

// sealValues puts the values of drafts into their bodies, encrypted for the message that
// each becomes. Where there are none it asks nothing of the database.
func sealValues(ctx context.Context, tx *Tx, list []valued) error {
	if len(list) == 0 {
		return nil
	}
	var conns []string
	for _, v := range list {
		conns = append(conns, v.draft.Conn)
	}
	rows, err := tx.Query(ctx, `SELECT conn::text, owner, pub FROM keys WHERE conn = ANY ($1::uuid[]) AND use = 'sealing'`, conns)
	if err != nil {
		return fmt.Errorf("reading the sealing keys of spokes: %w", err)
	}
	type key struct {
		owner signing.InstanceID
		pub   []byte
	}
	keys, conn, k := map[string]key{}, "", key{}
	if _, err := pgx.ForEachRow(rows, []any{&conn, &k.owner, &k.pub}, func() error { keys[conn] = key{k.owner, append([]byte(nil), k.pub...)}; return nil }); err != nil {
		return fmt.Errorf("reading the sealing keys of spokes: %w", err)
	}
	for _, v := range list {
		k := keys[v.draft.Conn]
		v.draft.id = newMessageID()
		body, err := v.draft.Body.(*commands.Spawn).Seal(k.pub, commands.ValuesPlace(k.owner, v.draft.Conn, v.draft.id), v.values)
		if err != nil {
			return fmt.Errorf("sealing the environment of task %s: %w", v.draft.Body.TaskID(), err)
		}
		v.draft.Body = body
	}
	return nil
}

func newMessageID() string { return uuid.Must(uuid.NewV7()).String() }

// keepValues queues the keeping of the values of orders that may go elsewhere.
func (db *DB) keepValues(tx *Tx, orders []SpawnOrder, which []int) error {
	var tasks []string
	var boxes [][]byte
	for _, i := range which {
		o := orders[i]
		if !o.Anywhere || len(o.Values) == 0 {
			continue
		}
		box, err := o.Spawn.Encrypt(db.sealing.Public(), db.keptPlace(o.Spawn.Task), o.Values)
		if err != nil {
			return fmt.Errorf("keeping the environment of task %s: %w", o.Spawn.Task, err)
		}
		tasks, boxes = append(tasks, o.Spawn.Task), append(boxes, box)
	}
	if len(tasks) > 0 {
		tx.Queue(`INSERT INTO order_values (task, box) SELECT * FROM unnest($1::uuid[], $2::bytea[])`, tasks, boxes)
	}
	return nil
}

// keptPlace is where the values of a task are encrypted for that stay here.
func (db *DB) keptPlace(task string) signing.Place { return commands.ValuesPlace(db.self, "", task) }

// keptValues opens what is kept of a task's values. There is nothing to open of a spawn
// without variables.
func (db *DB) keptValues(s *commands.Spawn, box []byte) (commands.Values, error) {
	if s.Sealed == nil {
		return nil, nil
	}
	if db.sealing == nil {
		return nil, errors.New("this instance has no sealing key")
	}
	return s.Decrypt(db.sealing, db.sealing.KeyID(), db.keptPlace(s.Task), box)
}
