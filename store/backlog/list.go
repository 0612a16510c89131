package backlog

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
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
	Archived  bool   // those that are archived, which no other list has
	Limit     int    // 0 = 100, at most 1000
	Before    string // id: only older ones, for the next page
}

func (f *Filter) complete() error {
	if f.Limit == 0 {
		f.Limit = 100
	}
	switch {
	case f.Limit < 1 || f.Limit > 1000:
		return commands.Refuse(commands.Validation, "a list of %d tasks is outside 1..1000", f.Limit)
	case f.Status != "" && f.Status != BoardReady && f.Status != BoardClaimed && f.Status != BoardBlocked && f.Status != BoardDone:
		return commands.Refuse(commands.Validation, "status %q is not one of ready, claimed, blocked, done", commands.Clip(string(f.Status)))
	case f.State != "" && !slices.Contains(commands.States, f.State):
		return commands.Refuse(commands.Validation, "state %q is not a state of a task; they are %v", commands.Clip(string(f.State)), commands.States)
	case f.Archived && (f.ReadyOnly || f.Owner != "" || len(f.states()) == 0):
		return commands.Refuse(commands.Validation, "only what has ended is archived, and the list is to have others").Hinting("list what is archived by its lane, its phase, or the state in which it ended")
	}
	if f.Before == "" {
		f.Before = lastID
	}
	before, err := uuid.Parse(f.Before)
	if err != nil {
		return commands.Refuse(commands.Validation, "%q is not a whole task id", commands.Clip(f.Before))
	}
	f.Before = before.String()
	return nil
}

// states lists the stored states that a filter lets through; empty means all.
func (f *Filter) states() []string {
	list := []string{}
	for _, s := range commands.States {
		if (f.State == "" || s == f.State) && (f.Status == "" || BoardStatusOf(s) == f.Status) && (s.Terminal() || !f.Archived) {
			list = append(list, string(s))
		}
	}
	return list
}

// source is the statement that walks the narrowest sets which hold all that the
// filter may let through.
func (f *Filter) source() string {
	switch {
	case f.ReadyOnly:
		return statement("list_ready")
	case f.Owner != "":
		return statement("list_held")
	case f.Phase != "":
		return statement("list_newest_of_phase")
	case f.Lane != "":
		return statement("list_newest_of_lane")
	}
	return statement("list_newest")
}

// List returns the tasks that the filter lets through, newest first, or with
// ReadyOnly in claim order.
func (ws *Workspace) List(ctx context.Context, f Filter) (list []Task, err error) {
	if err := f.complete(); err != nil {
		return nil, err
	}
	err = ws.read(ctx, "listing tasks", func(ctx context.Context, tx *store.Tx) error {
		list, err = ws.list(ctx, tx, f)
		return err
	})
	return list, err
}

// list reads on while agents that the workspace may not see have the places of other tasks.
func (ws *Workspace) list(ctx context.Context, tx *store.Tx, f Filter) (list []Task, err error) {
	for want := f.Limit; ; {
		args := []any{ws.name, "", f.states(), f.Owner, f.Phase, f.Lane, f.Before, f.Limit}
		if f.ReadyOnly {
			args = append(args, ws.bound)
		} else if f.Owner == "" {
			args = append(args, f.Archived)
		}
		page, err := queryTasks(ctx, tx, f.source(), args...)
		if err != nil {
			return nil, err
		}
		more := len(page) == f.Limit && !f.ReadyOnly
		if more {
			f.Before, f.Limit = page[len(page)-1].ID, 1000
		}
		list = append(list, ws.visible(page)...)
		if !more || len(list) >= want {
			return list[:min(want, len(list))], nil
		}
	}
}

// Stats count a backlog.
type Stats struct {
	Status        map[BoardStatus]int64    `json:"status"`       // done: those that ended well
	Unsuccessful  int64                    `json:"unsuccessful"` // ended otherwise; States says how
	States        map[commands.State]int64 `json:"states"`
	Claimable     int64                    `json:"claimable"`                 // stand ready
	OldestReady   *time.Time               `json:"oldest_ready_at,omitempty"` // creation of the oldest of them by id: of another one where a clock was set meanwhile
	OldestAge     float64                  `json:"oldest_ready_age_seconds"`
	ExpiredClaims int64                    `json:"expired_claims"` // leases that have run out and were not swept up yet
	Now           time.Time                `json:"now"`
}

// Stats counts without reading the tasks: they were tallied when they moved.
func (ws *Workspace) Stats(ctx context.Context) (Stats, error) {
	s := Stats{Status: map[BoardStatus]int64{BoardReady: 0, BoardClaimed: 0, BoardBlocked: 0, BoardDone: 0}, States: map[commands.State]int64{}}
	err := ws.read(ctx, "counting tasks", func(ctx context.Context, tx *store.Tx) error {
		rows, err := tx.Query(ctx, statement("count_states"), ws.name)
		if err != nil {
			return err
		}
		clear(s.States)
		var what string
		var n int64
		_, err = pgx.ForEachRow(rows, []any{&what, &n}, func() error {
			switch what {
			case "ready":
				s.Claimable = n
				s.States[commands.Queued] += n
			case "due", "deps":
				s.States[commands.Queued] += n
			default:
				s.States[commands.State(what)] += n
			}
			return nil
		})
		if err != nil {
			return err
		}
		return tx.QueryRow(ctx, statement("oldest_ready"), ws.name).Scan(&s.OldestReady, &s.ExpiredClaims, &s.Now)
	})
	if err != nil {
		return s, fmt.Errorf("counting tasks: %w", err)
	}
	for state, n := range s.States {
		if state.Terminal() && state != commands.Completed {
			s.Unsuccessful += n
		} else {
			s.Status[BoardStatusOf(state)] += n
		}
		if n == 0 {
			delete(s.States, state)
		}
	}
	if s.OldestReady != nil {
		s.OldestAge = max(0, s.Now.Sub(*s.OldestReady).Seconds()) // the clock may have been set back since
	}
	return s, nil
}
