package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
)

// standColumns are what tells in words how mirrors m stand. A result of 64 KiB and a signed refusal are not read for two words.
const standColumns = `m.task::text, m.state, m.reason, m.attempt, coalesce(m.started_said, m.started_at), CASE WHEN m.refusal IS NOT NULL THEN jsonb '{}' END, m.refusals,
	CASE WHEN m.result IS NOT NULL THEN (SELECT jsonb_strip_nulls(to_jsonb(r)) FROM jsonb_to_record(m.result) AS r(outcome jsonb, exit jsonb)) END`

// A Stand is what tells in words how an agent stands, and no more of its mirror: state, reason, attempt, start and refusals, that there
// is a signed refusal, and outcome and exit of its result.
type Stand Mirror

// StandOf returns how tasks stand that are named by their whole ids, in any order. An unknown one is left out.
func (db *DB) StandOf(ctx context.Context, tasks []string) (list []Stand, err error) {
	err = db.retry(ctx, func(ctx context.Context) error {
		rows, err := db.pool.Query(ctx, `SELECT `+standColumns+` FROM mirrors m WHERE m.task = ANY ($1::uuid[])`, tasks)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (m Stand, err error) {
			err = row.Scan(&m.Task, &m.State, &m.Reason, &m.Attempt, &m.StartedAt, &m.Refusal, &m.Refusals, &m.Result)
			m.ShortID = commands.ShortID(m.Task)
			return m, err
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading how agents stand: %w", err)
	}
	return list, nil
}
