package backlog

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Budget limits what the claims in its scope may spend of one dimension. A
// claim reserves its task's estimate; a report of usage settles it; the end of
// the attempt releases what is left, or charges the estimate when nothing of
// the dimension was reported.
type Budget struct {
	Name        string     `json:"name"`
	Scope       string     `json:"scope"`            // instance, workspace, connection, lane, agent, task, account
	Target      string     `json:"target,omitempty"` // which of them
	Dimension   string     `json:"dimension"`        // usd, tokens, minutes, …; spawns counts claims
	Hard        Amount     `json:"hard"`
	Soft        *Amount    `json:"soft,omitempty"` // passing it is noted in the audit, once per window
	OnHard      string     `json:"on_hard"`        // queue, downgrade, refuse, cancel
	DowngradeTo string     `json:"downgrade_to,omitempty"`
	Rolling     Seconds    `json:"rolling_seconds,omitempty"` // usage counts for so long
	ResetsAt    *time.Time `json:"resets_at,omitempty"`       // usage starts anew then,
	Every       Seconds    `json:"every_seconds,omitempty"`   // and so often after it
	Used        Amount     `json:"used"`
	Reserved    Amount     `json:"reserved"`
	Left        Amount     `json:"left"` // below 0 when more was used than allowed
	SoftSince   *time.Time `json:"soft_since,omitempty"`
}

// Seconds is a duration that JSON shows in seconds.
type Seconds time.Duration

// MarshalJSON writes whole seconds.
func (s Seconds) MarshalJSON() ([]byte, error) {
	return json.Marshal(int64(time.Duration(s) / time.Second))
}

var (
	budgetScopes = []string{"instance", "workspace", "connection", "lane", "agent", "task", "account"}
	quotaScopes  = []string{"instance", "workspace", "connection", "lane", "agent", "account"}
	freezeScopes = []string{"instance", "workspace", "lane", "connection", "account"}
)

// home is the workspace that a limit's row belongs to: none for what binds the
// whole instance.
func (ws *Workspace) home(scope string) string {
	if scope == "instance" {
		return ""
	}
	return ws.name
}

// govern runs fn in a transaction that changes limits or freezes of a home. Those
// of the whole instance are its owner's, whom no workspace binds.
func (ws *Workspace) govern(ctx context.Context, doing, home string, fn func(context.Context, *store.Tx) error) error {
	if home != "" {
		return ws.tx(ctx, doing, fn)
	}
	if err := ws.mayInstance(doing); err != nil {
		return err
	}
	return ws.backlog.db.Tx(ctx, doing, fn)
}

// mayInstance refuses what changes the whole instance, where the workspace is bound.
func (ws *Workspace) mayInstance(doing string) error {
	if !ws.bound {
		return nil
	}
	return commands.Refuse(commands.Forbidden, "%s: it binds the whole instance, and is changed by who may ask about that", doing).Hinting("use a token that was made with --workspace '*', or a limit of the workspace")
}

// mayLimit refuses a limit that would bind the agents that hubs order, where those are not
// the caller's. They are all in the default lane of the main workspace, and their account is what the
// policy of the host says.
func (ws *Workspace) mayLimit(scope, target string) error {
	if !ws.bound || ws.name != MainWorkspace || scope == "task" || scope == "lane" && target != DefaultLane || scope == "instance" {
		return nil
	}
	return commands.Refuse(commands.Forbidden, "a limit of %s in workspace %s binds the agents that hubs order here, too", commands.Clip(strings.TrimSpace(scope+" "+target)), ws.name).
		Hinting("use a token that was made with --workspace '*', or limit another lane")
}

// homeOf returns the home of the limit that a name means: the workspace's own
// before the instance's.
func (ws *Workspace) homeOf(ctx context.Context, table, name string) (home string, err error) {
	err = ws.read(ctx, "looking for "+table, func(ctx context.Context, tx *store.Tx) error {
		err := tx.QueryRow(ctx, `SELECT workspace FROM `+table+` WHERE workspace IN ('', $1) AND name = $2 ORDER BY workspace DESC LIMIT 1`, ws.name, name).Scan(&home)
		if err == pgx.ErrNoRows {
			home, err = ws.name, nil
		}
		return err
	})
	return home, err
}

func checkScope(scopes []string, scope, target string) error {
	wide := scope == "instance" || scope == "workspace"
	switch {
	case !slices.Contains(scopes, scope):
		return commands.Refuse(commands.Validation, "scope %q is not one of %v", commands.Clip(scope), scopes).
			Hinting("instance and workspace stand alone, the others take a name, as in lane:build or connection:attic")
	case wide && target != "":
		return commands.Refuse(commands.Validation, "scope %s takes no target", scope)
	case !wide && target == "":
		return commands.Refuse(commands.Validation, "scope %s needs a target, as in %s:NAME", scope, scope)
	}
	return checkText("the target", target, MaxKey, true)
}

func checkWindow(d Seconds) error {
	if d < 0 || d > Seconds(10*365*24*time.Hour) || d%Seconds(time.Second) != 0 {
		return commands.Refuse(commands.Validation, "a window of %s is not a whole number of seconds up to 10 years", commands.Lasting(time.Duration(d)))
	}
	return nil
}

func (g *Budget) validate() error {
	if g.OnHard == "" {
		g.OnHard = "queue"
	}
	if err := checkScope(budgetScopes, g.Scope, g.Target); err != nil {
		return err
	}
	if err := checkWindow(g.Rolling); err != nil {
		return err
	}
	if err := checkWindow(g.Every); err != nil {
		return err
	}
	switch {
	case !validName(g.Name):
		return commands.Refuse(commands.Validation, "the budget's name %q is not 1 to 63 lower-case letters, digits and hyphens", commands.Clip(g.Name))
	case !validDimension(g.Dimension):
		return commands.Refuse(commands.Validation, "dimension %q is not a name such as usd, tokens or minutes", commands.Clip(g.Dimension))
	case g.Hard < 0 || g.Hard > maxAmount:
		return commands.Refuse(commands.Validation, "the hard limit %s is outside 0..%s", g.Hard, maxAmount)
	case g.Soft != nil && (*g.Soft < 0 || *g.Soft > g.Hard):
		return commands.Refuse(commands.Validation, "the soft limit %s is outside 0..%s, the hard limit", *g.Soft, g.Hard)
	case !slices.Contains([]string{"queue", "downgrade", "refuse", "cancel"}, g.OnHard):
		return commands.Refuse(commands.Validation, "on-hard %q is not one of queue, downgrade, refuse, cancel", commands.Clip(g.OnHard))
	case (g.OnHard == "downgrade") != (g.DowngradeTo != "") || g.DowngradeTo != "" && !validName(g.DowngradeTo):
		return commands.Refuse(commands.Validation, "downgrade needs the lane to move tasks to, and nothing else does")
	case g.OnHard == "downgrade" && g.Scope == "lane" && g.Target == g.DowngradeTo:
		return commands.Refuse(commands.Validation, "a lane's budget cannot downgrade to the same lane")
	case g.Rolling > 0 && (g.ResetsAt != nil || g.Every > 0):
		return commands.Refuse(commands.Validation, "a budget has a rolling window or resets, not both")
	case g.Every > 0 && g.ResetsAt == nil:
		return commands.Refuse(commands.Validation, "a budget that resets again and again needs a first time to reset at")
	}
	return nil
}

// SetBudget makes a budget, or changes the limits and the window of the one
// with that name; what was used and reserved stays.
func (ws *Workspace) SetBudget(ctx context.Context, g Budget) error {
	if err := g.validate(); err != nil {
		return err
	}
	if err := ws.mayLimit(g.Scope, g.Target); err != nil {
		return err
	}
	return ws.govern(ctx, "setting budget "+g.Name, ws.home(g.Scope), func(ctx context.Context, tx *store.Tx) error {
		if g.Scope == "task" { // tasks come before budgets
			if err := ws.classOfItsOwn(ctx, tx, &g); err != nil {
				return err
			}
		}
		if err := awaitHolders(ctx, tx, "budgets"); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, statement("set_budget"),
			ws.home(g.Scope), g.Name, g.Scope, g.Target, g.Dimension, g.Hard, g.Soft, g.OnHard, g.DowngradeTo, time.Duration(g.Rolling), g.ResetsAt, time.Duration(g.Every))
		if err != nil {
			return err
		}
		if tag.RowsAffected() > 0 {
			_, err = tx.Exec(ctx, `SELECT recall_escrow(id) FROM budgets WHERE workspace = $1 AND name = $2`, ws.home(g.Scope), g.Name)
		}
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return commands.Refuse(commands.Conflict, "budget %s is there with another scope, dimension or kind of window; these do not change", g.Name).
				Hinting("remove it first").Running("budget", "remove", g.Name, "--reason", "WHY")
		}
		ws.audit(tx, "budget.set", g.Name, "", fmt.Sprintf("%s of %s for %s %s", g.Hard, g.Dimension, g.Scope, g.Target))
		return tellClaimers(ctx, tx)
	})
}

// awaitHolders waits for the claims that hold the limits of a table, and keeps
// others from it until the commit: none sees a limit that is new since it held
// what there was, and takes of it as if it held it too.
func awaitHolders(ctx context.Context, tx *store.Tx, table string) error {
	if _, err := tx.Exec(ctx, `LOCK TABLE `+table+` IN EXCLUSIVE MODE`); err != nil {
		return fmt.Errorf("waiting for claims that hold %s: %w", table, err)
	}
	return nil
}

// classOfItsOwn gives the task of a task's budget a class that no other has.
func (ws *Workspace) classOfItsOwn(ctx context.Context, tx *store.Tx, g *Budget) error {
	t, err := ws.find(ctx, tx, g.Target)
	if err != nil {
		return err
	}
	g.Target = t.ID
	if t.State.Terminal() {
		return commands.Refuse(commands.Conflict, "task %s is %s and spends nothing more", t.Name(), t.State)
	}
	leased, err := holdLeases(ctx, tx, []string{t.ID})
	if err != nil {
		return err
	}
	had, err := pull(ctx, tx, []string{t.ID})
	if err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, statement("class_of_its_own"), t.ID, t.rowState())
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 || len(leased)+len(had) == 0 {
		return commands.Refuse(commands.Conflict, "task %s changed at this moment; try once more", t.Name())
	}
	if len(had) > 0 {
		return ws.standAgain(ctx, tx, t)
	}
	return nil
}

func scanBudget(row pgx.CollectableRow) (g Budget, err error) {
	var rolling, every time.Duration
	err = row.Scan(&g.Name, &g.Scope, &g.Target, &g.Dimension, &g.Hard, &g.Soft, &g.OnHard, &g.DowngradeTo, &rolling, &g.ResetsAt, &every,
		&g.Used, &g.Reserved, &g.Left, &g.SoftSince)
	g.Rolling, g.Every = Seconds(rolling), Seconds(every)
	return g, err
}

// Budgets lists the budgets that bind the workspace, the instance's included.
func (ws *Workspace) Budgets(ctx context.Context) (list []Budget, err error) {
	err = ws.read(ctx, "listing budgets", func(ctx context.Context, tx *store.Tx) error {
		rows, err := tx.Query(ctx, statement("list_budgets"), ws.name)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, scanBudget)
		return err
	})
	return list, err
}

// GrantBudget raises a budget's hard limit.
func (ws *Workspace) GrantBudget(ctx context.Context, name string, more Amount, reason string) (Budget, error) {
	if more <= 0 || more > maxAmount {
		return Budget{}, commands.Refuse(commands.Validation, "a budget is raised by more than 0, not by %s", more)
	}
	return ws.changeBudget(ctx, name, "granted", reason, func(ctx context.Context, tx *store.Tx, id int) error {
		_, err := tx.Exec(ctx, `UPDATE budgets SET hard = least(hard + $2::bigint, 9223372036854775) WHERE id = $1`, id, int64(more))
		return err
	})
}

// ResetBudget starts a budget anew: nothing is used. What is reserved stays.
func (ws *Workspace) ResetBudget(ctx context.Context, name, reason string) (Budget, error) {
	return ws.changeBudget(ctx, name, "reset", reason, func(ctx context.Context, tx *store.Tx, id int) error {
		var batch pgx.Batch
		batch.Queue(`UPDATE budgets SET soft_since = NULL WHERE id = $1`, id)
		// Whoever rolls or settles just now comes first. Then what was used goes
		// together with the charges that would be taken off it later.
		batch.Queue(`SELECT FROM charges WHERE budget = $1 FOR UPDATE`, id)
		batch.Queue(`SELECT FROM budget_shards WHERE budget = $1 ORDER BY shard FOR UPDATE`, id)
		batch.Queue(`WITH forgotten AS (DELETE FROM charges WHERE budget = $1) UPDATE budget_shards SET used = 0 WHERE budget = $1`, id)
		return tx.SendBatch(ctx, &batch).Close()
	})
}

func (ws *Workspace) changeBudget(ctx context.Context, name, done, reason string, change func(context.Context, *store.Tx, int) error) (g Budget, err error) {
	home, err := ws.homeOf(ctx, "budgets", name)
	if err != nil {
		return g, err
	}
	err = ws.govern(ctx, "changing budget "+commands.Clip(name), home, func(ctx context.Context, tx *store.Tx) error {
		var id int
		err := tx.QueryRow(ctx, `SELECT id FROM budgets WHERE workspace = $1 AND name = $2 FOR NO KEY UPDATE`, home, name).Scan(&id)
		if err == pgx.ErrNoRows {
			return commands.Refuse(commands.NotFound, "no budget %q", commands.Clip(name)).Hinting("see").Running("budget", "list")
		}
		if err != nil {
			return err
		}
		if err := change(ctx, tx, id); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, statement("read_budget"), id)
		if err != nil {
			return err
		}
		if g, err = pgx.CollectExactlyOneRow(rows, scanBudget); err != nil {
			return err
		}
		ws.audit(tx, "budget."+done, name, "", reason)
		return tellClaimers(ctx, tx)
	})
	return g, err
}

// RemoveBudget removes a limit. Tasks whose account has no other budget wait:
// an account without a budget may spend nothing.
func (ws *Workspace) RemoveBudget(ctx context.Context, name, reason string) error {
	return ws.removeLimit(ctx, "budget", name, reason, statement("remove_budget"))
}

func (ws *Workspace) removeLimit(ctx context.Context, what, name, reason, sql string) error {
	home, err := ws.homeOf(ctx, what+"s", name)
	if err != nil {
		return err
	}
	return ws.govern(ctx, "removing "+what+" "+commands.Clip(name), home, func(ctx context.Context, tx *store.Tx) error {
		tag, err := tx.Exec(ctx, sql, home, name)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return commands.Refuse(commands.NotFound, "no %s %q", what, commands.Clip(name)).Hinting("see").Running(what, "list")
		}
		ws.audit(tx, what+".removed", name, "", reason)
		return tellClaimers(ctx, tx)
	})
}
