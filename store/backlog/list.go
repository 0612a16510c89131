package backlog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Filter says which tasks to list; its zero value means the newest of all.
type Filter struct {
	Status    BoardStatus
	State     commands.State
	Phase     string
	Lane      string
	Owner     string
	ReadyOnly bool   // only what stands ready, in the order in which it would be claimed
	Limit     int    // 0 = 100, at most 1000
	Before    string // id: only older ones, for the next page
}

// Each list walks the narrowest set that holds all it may show: what is open
// never costs the history, however long that is.
const (
	listReady = `(SELECT r.task AS id, row_number() OVER (ORDER BY r.rank, r.seq) AS pos FROM classes c, LATERAL (
			SELECT task, rank, seq FROM ready WHERE class = c.id ORDER BY rank, seq LIMIT $8
		) AS r WHERE c.workspace = $1 AND ($6 = '' OR c.lane = $6))`
	listHeld   = `(SELECT task AS id, 0 AS pos FROM leases WHERE workspace = $1)`
	listParked = `(SELECT task AS id, 0 AS pos FROM parked WHERE workspace = $1)`
	listQueued = `(SELECT task AS id, 0 AS pos FROM due WHERE workspace = $1 UNION ALL SELECT id, 0 FROM ` + listParked + ` AS q UNION ALL SELECT id, 0 FROM ` + listReady + ` AS r)`
	listPhase  = `(SELECT id, 0 AS pos FROM tasks WHERE workspace = $1 AND phase = $5 AND phase <> '')`
	listAll    = `(SELECT id, 0 AS pos FROM tasks WHERE workspace = $1)`
)

func (f *Filter) complete() error {
	if f.Limit == 0 {
		f.Limit = 100
	}
	switch {
	case f.Limit < 1 || f.Limit > 1000:
		return commands.Refuse(commands.Validation, "a list of %d tasks is outside 1..1000", f.Limit)
	case f.Status != "" && f.Status != BoardReady && f.Status != BoardClaimed && f.Status != BoardBlocked && f.Status != BoardDone:
		return commands.Refuse(commands.Validation, "status %q is not one of ready, claimed, blocked, done", clip(string(f.Status)))
	case f.State != "" && !slices.Contains(commands.States, f.State):
		return commands.Refuse(commands.Validation, "state %q is not a state of a task; they are %v", clip(string(f.State)), commands.States)
	case f.Before != "" && !looksLikeID(f.Before):
		return commands.Refuse(commands.Validation, "%q is not a whole task id", clip(f.Before))
	}
	return nil
}

// states lists the stored states that a filter lets through; empty means all.
func (f *Filter) states() []string {
	list := []string{}
	for _, s := range commands.States {
		if (f.State == "" || s == f.State) && (f.Status == "" || BoardStatusOf(s) == f.Status) {
			list = append(list, string(s))
		}
	}
	return list
}

// source is the set to walk, and whether it is small enough to be gathered
// before it is looked at.
func (f *Filter) source() (set, order string) {
	held := f.Status == BoardClaimed || f.Owner != "" || f.State == commands.Claimed || f.State == commands.Running || f.State == commands.AwaitingInput
	switch {
	case f.ReadyOnly:
		return listReady, "pos"
	case f.Phase != "":
		return listPhase, "id DESC"
	case held:
		return listHeld, "id DESC"
	case f.Status == BoardReady, f.State == commands.Queued:
		return listQueued, "id DESC"
	case f.Status == BoardBlocked, f.State != "" && !f.State.Terminal():
		return listParked, "id DESC"
	}
	return listAll, "id DESC"
}

// List returns the tasks that the filter lets through, newest first, or with
// ReadyOnly in claim order.
func (ws *Workspace) List(ctx context.Context, f Filter) (list []Task, err error) {
	if err := f.complete(); err != nil {
		return nil, err
	}
	set, order := f.source()
	walk := `MATERIALIZED ` + set + `, page AS MATERIALIZED (
			SELECT p.id, p.pos FROM p JOIN tasks t ON t.id = p.id JOIN classes c ON c.id = t.class LEFT JOIN leases l ON l.task = t.id`
	if set == listAll {
		walk = `(SELECT NULL), page AS MATERIALIZED (SELECT t.id, 0 AS pos FROM tasks t JOIN classes c ON c.id = t.class LEFT JOIN leases l ON l.task = t.id`
	}
	sql := limitsOf("$1") + `, p AS ` + walk + `
			WHERE t.workspace = $1 AND $2 = '' AND t.state = ANY ($3::text[]::task_state[]) AND ($4 = '' OR l.owner = $4) AND ($5 = '' OR t.phase = $5)
				AND ($6 = '' OR c.lane = $6) AND ($7 = '' OR t.id < $7::text::uuid)
			ORDER BY ` + order + ` LIMIT $8
		)` + taskRows + `JOIN page ON page.id = t.id ORDER BY ` + strings.Replace(order, "id", "t.id", 1)
	err = ws.read(ctx, "listing tasks", func(ctx context.Context, tx *store.Tx) error {
		list, err = queryTasks(ctx, tx, sql, ws.name, "", f.states(), f.Owner, f.Phase, f.Lane, f.Before, f.Limit)
		return err
	})
	return list, err
}

// Stats count a backlog (seed 000).
type Stats struct {
	Status        map[BoardStatus]int64    `json:"status"`
	States        map[commands.State]int64 `json:"states"`
	Claimable     int64                    `json:"claimable"`                 // stand ready
	OldestReady   *time.Time               `json:"oldest_ready_at,omitempty"` // creation of the oldest of them
	OldestAge     float64                  `json:"oldest_ready_age_seconds"`
	ExpiredClaims int64                    `json:"expired_claims"` // leases that have run out and were not swept up yet
	Now           time.Time                `json:"now"`
}

// Stats counts without reading the history: what is open is counted where it
// stands, what has ended was tallied when it did.
func (ws *Workspace) Stats(ctx context.Context) (Stats, error) {
	s := Stats{Status: map[BoardStatus]int64{BoardReady: 0, BoardClaimed: 0, BoardBlocked: 0, BoardDone: 0}, States: map[commands.State]int64{}}
	err := ws.read(ctx, "counting tasks", func(ctx context.Context, tx *store.Tx) error {
		rows, err := tx.Query(ctx, `
			SELECT 'queued', count(*) FROM ready WHERE workspace = $1 UNION ALL SELECT 'queued', count(*) FROM due WHERE workspace = $1
			UNION ALL SELECT CASE why WHEN 'deps' THEN 'queued' ELSE why END, count(*) FROM parked WHERE workspace = $1 GROUP BY 1
			UNION ALL SELECT t.state::text, count(*) FROM leases l JOIN tasks t ON t.id = l.task WHERE l.workspace = $1 GROUP BY 1
			UNION ALL SELECT state::text, sum(n)::bigint FROM tallies WHERE workspace = $1 GROUP BY 1`, ws.name)
		if err != nil {
			return err
		}
		clear(s.States)
		var state commands.State
		var n int64
		if _, err := pgx.ForEachRow(rows, []any{&state, &n}, func() error { s.States[state] += n; return nil }); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `SELECT (SELECT count(*) FROM ready WHERE workspace = $1),
				(SELECT min(t.created_at) FROM (
					SELECT (SELECT task FROM ready r WHERE r.class = c.id ORDER BY seq LIMIT 1) AS task FROM classes c WHERE c.workspace = $1
				) AS o JOIN tasks t ON t.id = o.task),
				(SELECT count(*) FROM leases WHERE workspace = $1 AND until <= now()), now()`, ws.name).
			Scan(&s.Claimable, &s.OldestReady, &s.ExpiredClaims, &s.Now)
	})
	if err != nil {
		return s, fmt.Errorf("counting tasks: %w", err)
	}
	for state, n := range s.States {
		s.Status[BoardStatusOf(state)] += n
		if n == 0 {
			delete(s.States, state)
		}
	}
	if s.OldestReady != nil {
		s.OldestAge = s.Now.Sub(*s.OldestReady).Seconds()
	}
	return s, nil
}
