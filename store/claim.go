package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
)

// A Fence is what a worker shows with every write to a task: the attempt it
// works for and the lease epoch it got. A write with any other changes nothing.
type Fence struct {
	Task    string `json:"task"`
	Attempt int    `json:"attempt"`
	Epoch   int64  `json:"epoch"`
}

// A Claimed is a task that was just leased.
type Claimed struct {
	Fence Fence
	Type  string // initial, retry, reclaim, …
	Asked Asked
	Spec  commands.Spawn
}

// Asked names the message that asked for a task; empty for the instance's own.
type Asked struct {
	Command string
	Digest  string // hex
}

// ClaimTerms say who claims what.
type ClaimTerms struct {
	Owner        string
	Capabilities []string
	Limit        int
	Lease        time.Duration
}

// Claim leases up to Limit ready tasks that the owner's capabilities serve, by
// priority and then age. Two claimers never get the same task: picking, opening
// the attempt and taking the lease are one statement. Tasks whose time to be
// started has passed are never among them.
func (db *DB) Claim(ctx context.Context, t ClaimTerms) ([]Claimed, error) {
	claim, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	var list []Claimed
	err = db.tx(ctx, "claiming tasks", func(ctx context.Context, tx pgx.Tx) error {
		// After a commit whose answer was lost, the attempts are already ours.
		if list, err = claimed(ctx, tx, claim.String()); err != nil || len(list) > 0 {
			return err
		}
		n, err := pick(ctx, tx, claim.String(), t)
		if err != nil || n == 0 {
			return err
		}
		list, err = claimed(ctx, tx, claim.String())
		return err
	})
	return list, err
}

func pick(ctx context.Context, tx pgx.Tx, claim string, t ClaimTerms) (int64, error) {
	capabilities := t.Capabilities
	if capabilities == nil {
		capabilities = []string{}
	}
	tag, err := tx.Exec(ctx, `
		WITH sets AS (
			SELECT 0 AS id UNION ALL SELECT id FROM requirement_sets WHERE capabilities <@ $4::text[]
		), candidates AS (
			SELECT c.workspace, c.lane, c.requires, c.rank, c.seq FROM sets, LATERAL (
				SELECT r.workspace, r.lane, r.requires, r.rank, r.seq FROM ready r
				WHERE r.workspace = 'main' AND r.lane = 'default' AND r.requires = sets.id AND r.expires_at > clock_timestamp()
				ORDER BY r.rank, r.seq LIMIT $3 FOR UPDATE SKIP LOCKED
			) c ORDER BY c.rank, c.seq LIMIT $3
		), picked AS (
			DELETE FROM ready r USING candidates c
			WHERE (r.workspace, r.lane, r.requires, r.rank, r.seq) = (c.workspace, c.lane, c.requires, c.rank, c.seq) RETURNING r.task
		), moved AS (
			UPDATE tasks SET state = 'claimed', reason = '', attempt = attempt + 1, epoch = epoch + 1, updated_at = clock_timestamp()
			WHERE id = ANY (ARRAY (SELECT task FROM picked)) AND state = 'queued' RETURNING id, attempt, epoch, next_type
		), opened AS (
			INSERT INTO attempts (task, number, epoch, type, owner, claim) SELECT id, attempt, epoch, next_type, $2, $1::uuid FROM moved
		), audited AS (
			INSERT INTO audit (actor, action, object) SELECT $2, 'task.claimed', id::text FROM moved
		)
		INSERT INTO leases (task, attempt, epoch, owner, until) SELECT id, attempt, epoch, $2, clock_timestamp() + $5::interval FROM moved`,
		claim, t.Owner, t.Limit, capabilities, t.Lease)
	if err != nil {
		return 0, err
	}
	return tag.RowsAffected(), nil
}

func claimed(ctx context.Context, tx pgx.Tx, claim string) ([]Claimed, error) {
	rows, err := tx.Query(ctx, `SELECT a.task::text, a.number, a.epoch, a.type, coalesce(t.command::text, ''), coalesce(encode(t.command_digest, 'hex'), ''), b.spec FROM attempts a JOIN tasks t ON t.id = a.task JOIN task_bodies b ON b.task = a.task
		WHERE a.claim = $1 AND a.ended_at IS NULL AND t.epoch = a.epoch ORDER BY -t.priority, t.created_at, t.id`, claim)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Claimed, error) {
		var c Claimed
		var spec []byte
		if err := row.Scan(&c.Fence.Task, &c.Fence.Attempt, &c.Fence.Epoch, &c.Type, &c.Asked.Command, &c.Asked.Digest, &spec); err != nil {
			return c, err
		}
		return c, json.Unmarshal(spec, &c.Spec)
	})
}

// Renew extends the leases of fences by lease, in one statement, and returns
// the fences that still hold. One that is not among them was replaced or
// revoked: its worker must stop.
func (db *DB) Renew(ctx context.Context, fences []Fence, lease time.Duration) (map[Fence]bool, error) {
	tasks, epochs := make([]string, len(fences)), make([]int64, len(fences))
	for i, f := range fences {
		tasks[i], epochs[i] = f.Task, f.Epoch
	}
	held := map[Fence]bool{}
	err := db.tx(ctx, "renewing leases", func(ctx context.Context, tx pgx.Tx) error {
		clear(held)
		rows, err := tx.Query(ctx, `UPDATE leases l SET until = clock_timestamp() + $3::interval
			FROM unnest($1::uuid[], $2::bigint[]) AS f (task, epoch) WHERE l.task = f.task AND l.epoch = f.epoch
			RETURNING l.task::text, l.attempt, l.epoch`, tasks, epochs, lease)
		if err != nil {
			return err
		}
		var f Fence
		_, err = pgx.ForEachRow(rows, []any{&f.Task, &f.Attempt, &f.Epoch}, func() error { held[f] = true; return nil })
		return err
	})
	return held, err
}

// An OpenAttempt is an attempt that has not ended, as a restarted worker finds it.
type OpenAttempt struct {
	Fence   Fence // the one that may write now: after a kill, the killer's
	Owner   string
	Started bool
	BootID  string
	LogOut  int64
	LogErr  int64
	Asked   Asked
	Spec    commands.Spawn
}

// OpenAttempts returns every attempt of owner that has not ended.
func (db *DB) OpenAttempts(ctx context.Context, owner string) ([]OpenAttempt, error) {
	rows, err := db.pool.Query(ctx, `
		SELECT a.task::text, a.number, t.epoch, a.owner, a.started_at IS NOT NULL, coalesce(s.boot_id, ''), coalesce(s.log_out, 0), coalesce(s.log_err, 0),
			coalesce(t.command::text, ''), coalesce(encode(t.command_digest, 'hex'), ''), b.spec
		FROM attempts a JOIN tasks t ON t.id = a.task JOIN task_bodies b ON b.task = a.task
		LEFT JOIN sessions s ON s.task = a.task AND s.attempt = a.number
		WHERE a.ended_at IS NULL AND a.owner = $1 ORDER BY a.claimed_at`, owner)
	if err != nil {
		return nil, fmt.Errorf("reading the open attempts: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (OpenAttempt, error) {
		var a OpenAttempt
		var spec []byte
		if err := row.Scan(&a.Fence.Task, &a.Fence.Attempt, &a.Fence.Epoch, &a.Owner, &a.Started, &a.BootID, &a.LogOut, &a.LogErr, &a.Asked.Command, &a.Asked.Digest, &spec); err != nil {
			return a, err
		}
		return a, json.Unmarshal(spec, &a.Spec)
	})
	if err != nil {
		return nil, fmt.Errorf("reading the open attempts: %w", err)
	}
	return list, nil
}
