package backlog

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Quota limits how many tasks in its scope are held at once, how many may be
// claimed per window, or both.
type Quota struct {
	Name       string  `json:"name"`
	Scope      string  `json:"scope"` // instance, workspace, connection, lane, agent, account
	Target     string  `json:"target,omitempty"`
	Concurrent *int    `json:"concurrent,omitempty"`
	PerWindow  *int    `json:"per_window,omitempty"`
	Window     Seconds `json:"window_seconds,omitempty"`
	Active     int     `json:"active"`    // open attempts that count now
	InWindow   int     `json:"in_window"` // claims within the last window
}

// SetQuota makes a quota or changes the limits of the one with that name. Open
// attempts from before it existed do not count.
func (ws *Workspace) SetQuota(ctx context.Context, q Quota) error {
	if err := checkScope(quotaScopes, q.Scope, q.Target); err != nil {
		return err
	}
	if err := checkWindow(q.Window); err != nil {
		return err
	}
	switch {
	case !validName(q.Name):
		return commands.Refuse(commands.Validation, "the quota's name %q is not 1 to 63 lower-case letters, digits and hyphens", commands.Clip(q.Name))
	case q.Concurrent == nil && q.PerWindow == nil:
		return commands.Refuse(commands.Validation, "a quota limits how many at once, how many per window, or both")
	case q.Concurrent != nil && (*q.Concurrent < 0 || *q.Concurrent > 1e6), q.PerWindow != nil && (*q.PerWindow < 0 || *q.PerWindow > 1e6):
		return commands.Refuse(commands.Validation, "a quota's limits are 0 to 1000000")
	case (q.PerWindow == nil) != (q.Window == 0):
		return commands.Refuse(commands.Validation, "a limit per window needs the window's length, and the other way round")
	}
	if err := ws.mayLimit(q.Scope, q.Target); err != nil {
		return err
	}
	return ws.govern(ctx, "setting quota "+q.Name, ws.home(q.Scope), func(ctx context.Context, tx *store.Tx) error {
		if err := awaitHolders(ctx, tx, "quotas"); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, statement("set_quota"),
			ws.home(q.Scope), q.Name, q.Scope, q.Target, q.Concurrent, q.PerWindow, time.Duration(q.Window))
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return commands.Refuse(commands.Conflict, "quota %s is there with another scope, which does not change", q.Name).Hinting("remove it first").Running("quota", "remove", q.Name, "--reason", "WHY")
		}
		ws.audit(tx, "quota.set", q.Name, "", fmt.Sprintf("for %s %s", q.Scope, q.Target))
		return tellClaimers(ctx, tx)
	})
}

// Quotas lists the quotas that bind the workspace, with what counts now.
func (ws *Workspace) Quotas(ctx context.Context) (list []Quota, err error) {
	err = ws.read(ctx, "listing quotas", func(ctx context.Context, tx *store.Tx) error {
		rows, err := tx.Query(ctx, statement("list_quotas"), ws.name)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (q Quota, err error) {
			var window time.Duration
			err = row.Scan(&q.Name, &q.Scope, &q.Target, &q.Concurrent, &q.PerWindow, &window, &q.Active, &q.InWindow)
			q.Window = Seconds(window)
			return q, err
		})
		return err
	})
	return list, err
}

// RemoveQuota removes a limit.
func (ws *Workspace) RemoveQuota(ctx context.Context, name, reason string) error {
	return ws.removeLimit(ctx, "quota", name, reason, `DELETE FROM quotas WHERE workspace = $1 AND name = $2`)
}
