package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// EndBatch is how many orders one call of [DB.EndUnanswered] ends at most.
const EndBatch = 500

// An Unanswered is an order that was ended because nobody answered it.
type Unanswered struct {
	Task   string
	Spoke  string // that it had gone to
	State  commands.State
	Reason commands.Reason
}

// EndUnanswered ends orders that nobody will answer any more, and returns them. An
// order that no spoke answered by its last moment ends expired, or cancelled when it
// was to be killed. A kill that no spoke answered by its own last moment ends the
// order unavailable: what became of the agent is not known. One that was refused ends nothing. A pause that no spoke answered
// ends alone. All wait for what clocks may differ. An answer that comes later is kept in the inbox, and changes nothing.
// Why what is held is not said to have no end: see [newsSQL].
func (db *DB) EndUnanswered(ctx context.Context) (list []Unanswered, err error) {
	err = db.Tx(ctx, "ending unanswered orders", func(ctx context.Context, tx *Tx) error {
		rows, err := tx.Query(ctx, `
			WITH late AS MATERIALIZED (
				SELECT m.task FROM connections c, LATERAL (
					SELECT task FROM mirrors WHERE conn = c.id AND ended_at IS NULL AND accepted_at IS NULL AND expires_at < now() - $1::interval
					ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED) AS m LIMIT $2
			), unheard AS MATERIALIZED (
				SELECT task FROM mirrors WHERE ended_at IS NULL AND accepted_at IS NOT NULL AND kill_expires_at < now() - $1::interval
				ORDER BY kill_expires_at LIMIT $2 FOR UPDATE SKIP LOCKED
			), ended AS (
				UPDATE mirrors SET ended_at = clock_timestamp(), updated_at = clock_timestamp(),
					state = CASE WHEN accepted_at IS NOT NULL THEN task_state 'unavailable' WHEN end_ordered(kill) THEN task_state 'cancelled' ELSE task_state 'expired' END,
					reason = CASE WHEN end_ordered(kill) THEN reason_of(kill) ELSE 'command_expired' END
				WHERE task = ANY (ARRAY (SELECT task FROM late UNION ALL SELECT task FROM unheard)) AND NOT is_terminal(state)
				RETURNING task, state, reason, conn
			), audited AS (
				INSERT INTO audit (actor, action, object, code, why, conn)
				SELECT 'self', 'mirror.' || state, task::text, reason, 'no answer by the last moment', conn FROM ended
			)
			SELECT task::text, (SELECT peer_name FROM connections c WHERE c.id = ended.conn), state, reason FROM ended`, signing.Skew, EndBatch)
		if err != nil {
			return fmt.Errorf("ending unanswered orders: %w", err)
		}
		if list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Unanswered]); err != nil {
			return err
		}
		return expirePauses(ctx, tx)
	})
	return list, err
}

// NextUnanswered is in how long the next such order is to be ended, at most within.
func (db *DB) NextUnanswered(ctx context.Context, within time.Duration) (next time.Duration, err error) {
	err = db.Read(ctx, "looking for the next unanswered order", func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT least(least(
				(SELECT min(pause_expires_at) FROM mirrors WHERE pause_expires_at < now() - $1::interval + $2::interval),
				(SELECT min(m.at) FROM connections c, LATERAL (
					SELECT min(expires_at) AS at FROM mirrors WHERE conn = c.id AND ended_at IS NULL AND accepted_at IS NULL AND expires_at < now() - $1::interval + $2::interval) AS m),
				(SELECT min(kill_expires_at) FROM mirrors WHERE ended_at IS NULL AND accepted_at IS NOT NULL AND kill_expires_at < now() - $1::interval + $2::interval)
			) + $1::interval - now(), $2)`, signing.Skew, within).Scan(&next)
	})
	return next, err
}
