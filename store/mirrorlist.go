package store

import (
	"context"
	"fmt"

	"github.com/spawnmesh/spawnmesh/commands"
)

// MirrorTerms narrow a list of mirrors.
type MirrorTerms struct {
	Spoke    string            // on which they are; "" = on all
	Open     bool              // without those that have ended
	Archived bool              // those that are archived, which no other list has
	Labels   commands.Selector // that they have
	Before   string            // only those with a lower id; "" = the newest
	Limit    int
}

// mirrorsLooked is at how many mirrors one list by labels looks: what it costs does not grow with the history.
const mirrorsLooked = 5000

// mirrorsGlanced is at how many it looks first, for each that it is to find: labels that many have are found there.
const mirrorsGlanced = 5

// lastID is above the id of every task.
const lastID = "ffffffff-ffff-ffff-ffff-ffffffffffff"

// ListMirrors returns the newest mirrors of t, and before which id the list goes on; "" where there
// are no more. A list by labels may go on although it has fewer than the limit, or none.
func (db *DB) ListMirrors(ctx context.Context, t MirrorTerms) (list []Mirror, next string, err error) {
	if t.Before == "" {
		t.Before = lastID
	}
	if !t.Labels.Empty() {
		return db.labelled(ctx, t)
	}
	args := []any{t.Limit, t.Before}
	newest := t.newest(&args)
	list, err = db.mirrors(ctx, `JOIN (SELECT task FROM (`+newest+`) AS newest ORDER BY task DESC LIMIT $1) AS page ON page.task = m.task ORDER BY m.task DESC`, args...)
	if len(list) == t.Limit {
		next = list[len(list)-1].Task
	}
	return list, next, err
}

// newest selects the newest $1 mirrors below $2, whatever their labels. Those of a spoke are ordered by its
// connection too, which the primary key is not: a planner that takes a spoke with few for one of many would walk it.
func (t MirrorTerms) newest(args *[]any) string {
	listed, by := fmt.Sprintf(`(archived, task) < (%[1]t, $2) AND archived >= %[1]t`, t.Archived), `archived DESC, task DESC`
	if t.Open { // none of them is archived
		listed, by = `task < $2 AND ended_at IS NULL`, `task DESC`
	}
	if t.Spoke == "" {
		return `SELECT task, labels FROM mirrors WHERE ` + listed + ` ORDER BY ` + by + ` LIMIT $1`
	}
	if t.Open {
		listed = `(conn, task) < (k.id, $2) AND conn >= k.id AND ended_at IS NULL`
	} else {
		listed = fmt.Sprintf(`(conn, archived, task) < (k.id, %[1]t, $2) AND (conn, archived) >= (k.id, %[1]t)`, t.Archived)
	}
	*args = append(*args, t.Spoke)
	return fmt.Sprintf(`SELECT n.* FROM connections k, LATERAL (SELECT task, labels FROM mirrors WHERE %s ORDER BY conn DESC, %s LIMIT $1) AS n
		WHERE k.peer_name = $%d ORDER BY n.task DESC LIMIT $1`, listed, by, len(*args))
}

// fits holds for the labels that a selector asks for, whose [labelArgs] are the arguments from the nth on.
func fits(n int) string {
	return fmt.Sprintf(`coalesce(labels, '{}') @> $%d::jsonb AND NOT coalesce(labels, '{}') @> ANY ($%d::jsonb[]) AND coalesce(labels, '{}') ?& $%d::text[] AND NOT coalesce(labels, '{}') ?| $%d::text[]`, n, n+1, n+2, n+3)
}

// labelArgs are never null: nothing fits what is not known.
func labelArgs(s commands.Selector) []any {
	has := s.Has
	if has == nil {
		has = commands.Labels{}
	}
	return []any{has, append([]commands.Labels{}, s.HasNot...), append([]string{}, s.Names...), append([]string{}, s.NoNames...)}
}

func (t MirrorTerms) pageArgs(look int) []any {
	return append([]any{look, t.Before, t.Limit}, labelArgs(t.Labels)...)
}

func (db *DB) labelled(ctx context.Context, t MirrorTerms) (list []Mirror, next string, err error) {
	page, next, err := db.pageByLabels(ctx, t)
	if err != nil {
		return nil, "", fmt.Errorf("looking for agents by their labels: %w", err)
	}
	if len(page) == t.Limit {
		next = page[len(page)-1]
	}
	list, err = db.mirrors(ctx, `WHERE m.task = ANY ($1::uuid[]) ORDER BY m.task DESC`, page)
	return list, next, err
}

// pageByLabels finds the ids of a page, by the cheapest way that finds them.
func (db *DB) pageByLabels(ctx context.Context, t MirrorTerms) (page []string, next string, err error) {
	page, next, err = db.amongNewest(ctx, t, min(mirrorsGlanced*t.Limit, mirrorsLooked))
	if err != nil || len(page) == t.Limit || next == "" {
		return page, next, err
	}
	if len(t.Labels.Has) > 0 {
		if few, all, err := db.byLabels(ctx, t); err != nil || all {
			return few, "", err
		}
	}
	return db.amongNewest(ctx, t, mirrorsLooked)
}

// fewLabelled names as seen up to $1 of the mirrors that have the labels $n, by their index. All are asked for: else a
// planner that takes labels for frequent reads the table until it has found some.
func fewLabelled(n int) string {
	return fmt.Sprintf(`found AS MATERIALIZED (SELECT task, conn, labels, ended_at, archived FROM mirrors WHERE labels @> $%d::jsonb), seen AS MATERIALIZED (SELECT * FROM found LIMIT $1)`, n)
}

// byLabels finds a page by the index of labels, if so few mirrors have those that all can be looked at.
func (db *DB) byLabels(ctx context.Context, t MirrorTerms) (page []string, all bool, err error) {
	err = db.retry(ctx, func(ctx context.Context) error {
		return db.pool.QueryRow(ctx, `WITH `+fewLabelled(4)+`
			SELECT (SELECT count(*) FROM seen) < $1::int, ARRAY (SELECT task::text FROM seen WHERE task < $2 AND `+fits(4)+`
				AND archived = $10 AND (ended_at IS NULL OR NOT $8::bool) AND ($9::text = '' OR conn IN (SELECT id FROM connections WHERE peer_name = $9)) ORDER BY seen.task DESC LIMIT $3)`,
			append(t.pageArgs(mirrorsLooked), t.Open, t.Spoke, t.Archived && !t.Open)...).Scan(&all, &page)
	})
	return page, all, err
}

// amongNewest finds a page among so many of the newest mirrors, and says before which id the next ones are.
func (db *DB) amongNewest(ctx context.Context, t MirrorTerms, look int) (page []string, next string, err error) {
	args := t.pageArgs(look)
	newest := t.newest(&args)
	err = db.retry(ctx, func(ctx context.Context) error {
		return db.pool.QueryRow(ctx, `WITH seen AS MATERIALIZED (`+newest+`)
			SELECT ARRAY (SELECT task::text FROM seen WHERE `+fits(4)+` ORDER BY seen.task DESC LIMIT $3),
				CASE WHEN (SELECT count(*) FROM seen) < $1 THEN '' ELSE (SELECT task::text FROM seen ORDER BY seen.task LIMIT 1) END`, args...).Scan(&page, &next)
	})
	return page, next, err
}

// mirrorsBefore is among how many open mirrors of a connection those are counted that stand before one.
const mirrorsBefore = 1000

// Before counts the orders that their spoke takes before one that it has accepted and not begun: of a higher
// priority, or given earlier. It is nil where the spoke has too much to do to be counted.
func (db *DB) Before(ctx context.Context, m Mirror) (before *int, err error) {
	err = db.retry(ctx, func(ctx context.Context) error {
		return db.pool.QueryRow(ctx, `SELECT CASE WHEN count(*) <= $1 THEN count(*) FILTER (WHERE started_at IS NULL AND attempt = 0 AND (-priority, command) < (-$3::int, $4::uuid)) END
			FROM (SELECT priority, command, started_at, attempt FROM mirrors WHERE conn = $2 AND accepted_at IS NOT NULL AND ended_at IS NULL LIMIT $1 + 1) AS open`,
			mirrorsBefore, m.Conn, m.Priority, m.Command).Scan(&before)
	})
	if err != nil {
		return nil, fmt.Errorf("counting the orders before agent %s: %w", m.Task, err)
	}
	return before, nil
}
