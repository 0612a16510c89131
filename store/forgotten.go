package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
)

// forgiveForgotten notes of which ends the sender has told another one before its restore alone: it need not know that.
func forgiveForgotten(ctx context.Context, tx *Tx, conn string, clashes []*fold) error {
	if len(clashes) == 0 {
		return nil
	}
	var orders, ids []string
	var numbers []int64
	for _, x := range clashes {
		orders, numbers = append(orders, x.command), append(numbers, x.message.Header.Seq)
		for _, m := range x.all {
			ids = append(ids, m.Header.ID)
		}
	}
	rows, err := tx.Query(ctx, `SELECT n FROM unnest($2::uuid[], $3::bigint[]) WITH ORDINALITY AS u (command, seq, n) JOIN sequences s ON s.conn = $1 AND s.peer_base > 0 AND u.seq > s.peer_base
		WHERE NOT EXISTS (SELECT FROM inbox i WHERE i.re = u.command AND (i.conn = $1) IS TRUE AND i.seq > s.peer_base AND i.code = '' AND i.kind IN ($5, $6) AND i.id <> ALL ($4::uuid[]))`,
		conn, orders, numbers, ids, string(commands.ResultKind), string(commands.RefusedKind))
	if err != nil {
		return fmt.Errorf("looking for what was told before a restore: %w", err)
	}
	var n int
	if _, err = pgx.ForEachRow(rows, []any{&n}, func() error {
		m := clashes[n-1].message
		m.Why, m.forgotten = "the task has another end already, which was told before the restore of the sender", true
		return nil
	}); err != nil {
		return fmt.Errorf("looking for what was told before a restore: %w", err)
	}
	return nil
}
