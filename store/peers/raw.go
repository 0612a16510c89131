package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A raw is the least a queue in Postgres can be: one table, an index that holds
// exactly the queued rows in claim order, and one statement per claim. It knows
// no dependencies, retries, leases or owners' rights.
type raw struct {
	pool     *pgxpool.Pool
	listener *listener
}

const rawSchema = `
	CREATE TABLE jobs (
		id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
		state       text NOT NULL DEFAULT 'queued',
		priority    smallint NOT NULL,
		attempt     int NOT NULL DEFAULT 0,
		owner       text,
		args        jsonb NOT NULL,
		created_at  timestamptz NOT NULL DEFAULT now(),
		claimed_at  timestamptz,
		ended_at    timestamptz
	) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
	CREATE INDEX jobs_queued ON jobs (priority, id) WHERE state = 'queued';
	CREATE INDEX jobs_claimed ON jobs (claimed_at) WHERE state = 'claimed';`

func (r *raw) open(ctx context.Context, url string) (about, error) {
	var err error
	if r.pool, err = pool(ctx, url); err != nil {
		return about{}, err
	}
	if _, err = r.pool.Exec(ctx, rawSchema); err != nil {
		return about{}, err
	}
	r.listener, err = listen(ctx, url, "jobs")
	return about{
		Version:  "one table",
		Settings: "worked: 4 connections, 500 jobs a claim and a completion; pickup: LISTEN, poll 20 ms",
	}, err
}

func (r *raw) insert(ctx context.Context, j job) error {
	args, err := json.Marshal(j)
	if err != nil {
		return err
	}
	_, err = r.pool.Exec(ctx, `WITH added AS (INSERT INTO jobs (priority, args) VALUES ($1, $2)) SELECT pg_notify('jobs', '')`, priority(j), args)
	return err
}

func (r *raw) insertMany(ctx context.Context, jobs []job) error {
	priorities, args := make([]int16, len(jobs)), make([]string, len(jobs))
	for i, j := range jobs {
		text, err := json.Marshal(j)
		if err != nil {
			return err
		}
		priorities[i], args[i] = priority(j), string(text)
	}
	_, err := r.pool.Exec(ctx, `INSERT INTO jobs (priority, args) SELECT * FROM unnest($1::smallint[], $2::jsonb[])`, priorities, args)
	return err
}

func priority(j job) int16 {
	if j.Low {
		return 4
	}
	return 1
}

// The limit is part of the text: a plan for an unknown one could read all rows.
func rawClaim(n int) string {
	return fmt.Sprintf(`UPDATE jobs SET state = 'claimed', attempt = attempt + 1, owner = $1, claimed_at = now()
		WHERE id = ANY (ARRAY (SELECT id FROM jobs WHERE state = 'queued' ORDER BY priority, id LIMIT %d FOR UPDATE SKIP LOCKED))
		RETURNING id, args`, n)
}

func (r *raw) claim(ctx context.Context, n int) ([]held, error) {
	rows, err := r.pool.Query(ctx, rawClaim(n), "worker")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (held, error) {
		var id int64
		var args []byte
		if err := row.Scan(&id, &args); err != nil {
			return held{}, err
		}
		h := held{ref: id}
		return h, json.Unmarshal(args, &h.job)
	})
}

func (r *raw) complete(ctx context.Context, jobs []held) error {
	ids := make([]int64, len(jobs))
	for i, h := range jobs {
		ids[i] = h.ref.(int64)
	}
	_, err := r.pool.Exec(ctx, `UPDATE jobs SET state = 'done', ended_at = now() WHERE id = ANY ($1) AND state = 'claimed'`, ids)
	return err
}

func (r *raw) empty(ctx context.Context) error {
	_, err := r.pool.Exec(ctx, `TRUNCATE jobs`)
	return err
}

func (r *raw) unfinished(ctx context.Context) (found bool, err error) {
	err = r.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM jobs WHERE state = 'queued') OR EXISTS (SELECT FROM jobs WHERE state = 'claimed')`).Scan(&found)
	return found, err
}

func (r *raw) work(ctx context.Context, slots int, do func(job)) error {
	return pull(ctx, r, slots, do)
}

func (r *raw) notified() <-chan struct{} { return r.listener.c }

func (r *raw) close() {
	r.listener.close()
	r.pool.Close()
}

// pool opens the connections a contender may use.
func pool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("reading the address of the database: %w", err)
	}
	c.MaxConns = maxConns
	return pgxpool.NewWithConfig(ctx, c)
}
