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

// A Lane is a scheduling queue of a workspace. One that nobody has set is
// active and weighs 1.
type Lane struct {
	Name    string    `json:"name"`
	State   string    `json:"state"`  // active; paused: nothing is claimed; draining: nothing new is taken; disabled: neither
	Weight  int       `json:"weight"` // its share of the claims when several lanes have work
	Reason  string    `json:"reason,omitempty"`
	Actor   string    `json:"actor,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Queued  int64     `json:"queued"`
	Claimed int64     `json:"claimed"`
}

// SetLane sets state and weight of a lane; an empty state or a weight of 0
// leaves that as it is.
func (ws *Workspace) SetLane(ctx context.Context, l Lane) error {
	if err := checkText("the reason", l.Reason, commands.MaxReason, false); err != nil {
		return err
	}
	switch {
	case !validName(l.Name):
		return commands.Refuse(commands.Validation, "lane %q is not 1 to 63 lower-case letters, digits and hyphens", commands.Clip(l.Name))
	case !slices.Contains([]string{"", "active", "paused", "draining", "disabled"}, l.State):
		return commands.Refuse(commands.Validation, "lane state %q is not one of active, paused, draining, disabled", commands.Clip(l.State))
	case l.Weight < 0 || l.Weight > 1000:
		return commands.Refuse(commands.Validation, "weight %d is outside 1..1000", l.Weight)
	}
	if l.State != "" {
		if err := ws.mayLimit("lane", l.Name); err != nil {
			return err
		}
	}
	return ws.tx(ctx, "setting lane "+l.Name, func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Exec(ctx, statement("set_lane"),
			ws.name, l.Name, l.State, l.Weight, l.Reason, ws.actor)
		if err != nil {
			return err
		}
		done := "lane." + l.State
		if l.State == "" {
			done = "lane.weighed"
		}
		ws.audit(tx, done, l.Name, "", l.Reason)
		return tellClaimers(ctx, tx)
	})
}

// Lanes lists the lanes that were set or have open tasks.
func (ws *Workspace) Lanes(ctx context.Context) (list []Lane, err error) {
	err = ws.read(ctx, "listing lanes", func(ctx context.Context, tx *store.Tx) error {
		rows, err := tx.Query(ctx, statement("list_lanes"), ws.name)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l Lane, err error) {
			var since *time.Time
			err = row.Scan(&l.Name, &l.State, &l.Weight, &l.Reason, &l.Actor, &since, &l.Queued, &l.Claimed)
			if since != nil {
				l.Since = *since
			}
			return l, err
		})
		return err
	})
	return list, err
}

// A Freeze is a latch: nothing in its scope is claimed until it is lifted.
type Freeze struct {
	Scope  string    `json:"scope"` // instance, workspace, lane, connection, account
	Target string    `json:"target,omitempty"`
	Reason string    `json:"reason"`
	Actor  string    `json:"actor"`
	Since  time.Time `json:"since"`
}

// Freeze sets a latch. One that is set already stays as it is, and is returned: nothing was changed then.
func (ws *Workspace) Freeze(ctx context.Context, f Freeze) (was *Freeze, err error) {
	if err := checkScope(freezeScopes, f.Scope, f.Target); err != nil {
		return nil, err
	}
	f.Reason = strings.TrimSpace(f.Reason)
	if err := commands.CheckReason(f.Reason); err != nil {
		return nil, err
	}
	if f.Reason == "" {
		return nil, commands.Refuse(commands.Validation, "a freeze needs a reason").Hinting("say why; it is recorded")
	}
	if err := ws.mayLimit(f.Scope, f.Target); err != nil {
		return nil, err
	}
	err = ws.govern(ctx, "freezing", ws.home(f.Scope), func(ctx context.Context, tx *store.Tx) error {
		was = nil
		tag, err := tx.Exec(ctx, `INSERT INTO freezes (workspace, scope, target, reason, actor) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`,
			ws.home(f.Scope), f.Scope, f.Target, f.Reason, ws.actor)
		if err == nil && tag.RowsAffected() == 0 {
			was = &Freeze{Scope: f.Scope, Target: f.Target}
			return tx.QueryRow(ctx, `SELECT reason, actor, since FROM freezes WHERE workspace = $1 AND scope = $2 AND target = $3`, ws.home(f.Scope), f.Scope, f.Target).
				Scan(&was.Reason, &was.Actor, &was.Since)
		}
		if err != nil {
			return err
		}
		return ws.auditFreeze(ctx, tx, "freeze", f.Scope, f.Target, f.Reason)
	})
	return was, err
}

// auditFreeze says in the audit what was frozen; a connection is found there by its name, as with all that is done to it.
func (ws *Workspace) auditFreeze(ctx context.Context, tx *store.Tx, action, scope, target, why string) error {
	row := store.AuditRow{Actor: ws.actor, Action: action, Object: strings.TrimSpace(scope + " " + target), Why: why}
	if scope == "connection" {
		err := tx.QueryRow(ctx, `SELECT peer_name, id::text FROM connections WHERE id::text = $1`, target).Scan(&row.Object, &row.Conn)
		if err != nil && err != pgx.ErrNoRows {
			return fmt.Errorf("looking for the connection that is frozen: %w", err)
		}
	}
	tx.Audit(row)
	return nil
}

// Unfreeze lifts a latch.
func (ws *Workspace) Unfreeze(ctx context.Context, scope, target, reason string) error {
	if err := ws.mayLimit(scope, target); err != nil {
		return err
	}
	return ws.govern(ctx, "unfreezing", ws.home(scope), func(ctx context.Context, tx *store.Tx) error {
		tag, err := tx.Exec(ctx, `DELETE FROM freezes WHERE workspace = $1 AND scope = $2 AND target = $3`, ws.home(scope), scope, target)
		if err != nil {
			return fmt.Errorf("lifting the freeze: %w", err)
		}
		if tag.RowsAffected() == 0 {
			return commands.Refuse(commands.NotFound, "%s is not frozen", commands.Clip(strings.TrimSuffix(scope+":"+target, ":"))).Hinting("see what is").Running("freeze", "list")
		}
		if err := ws.auditFreeze(ctx, tx, "unfreeze", scope, target, reason); err != nil {
			return err
		}
		return tellClaimers(ctx, tx)
	})
}

// Freezes lists the latches that bind the workspace, those that hubs have set here for what they order among them.
func (ws *Workspace) Freezes(ctx context.Context) (list []Freeze, err error) {
	err = ws.read(ctx, "listing freezes", func(ctx context.Context, tx *store.Tx) error {
		rows, err := tx.Query(ctx, `SELECT scope, target, reason, actor, since FROM (SELECT scope, target, reason, actor, since FROM freezes WHERE workspace IN ('', $1)
			UNION ALL SELECT 'connection', l.conn::text, l.reason, c.peer_name || ', ' || l.actor, l.since FROM latches l JOIN connections c ON c.id = l.conn
				WHERE l.frozen AND $2 AND NOT has_ended(c.state)) AS all_of_them ORDER BY since`, ws.name, ws.name == MainWorkspace && !ws.bound)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Freeze])
		return err
	})
	return list, err
}
