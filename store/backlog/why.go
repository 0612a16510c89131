package backlog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Why says what keeps a task from being claimed, and who could claim it.
type Why struct {
	Task      Task                 `json:"task"`
	Claimable bool                 `json:"claimable"` // by the claimers in By, now
	Reasons   []commands.WhyReason `json:"reasons"`   // every one, in the order of the admission
	By        []Claimer            `json:"by"`        // claimers of late whose capabilities and lanes fit

	waitsInput bool // inputs of it are not here

	lapsed bool   // a claim of it has run out, and nobody has taken it since
	words  string // of who ended, paused or blocked it
}

// A Claimer is somebody who claimed, or tried to, not long ago.
type Claimer struct {
	Owner        string    `json:"owner"`
	Capabilities []string  `json:"capabilities"`
	Lanes        []string  `json:"lanes,omitempty"` // none = all
	Seen         time.Time `json:"seen"`
}

// claimerMemory is how long a claimer counts as one of late.
const claimerMemory = time.Hour

// claimerNotes remember whom this process has noted of late, so that a claim
// does not ask each time.
type claimerNotes struct {
	mu   sync.Mutex // guards the rest
	said map[string]time.Time
}

// due reports whether a claimer is to be noted with this claim.
func (n *claimerNotes) due(workspace string, t ClaimTerms) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Since(n.said[claimerID(workspace, t)]) >= time.Minute
}

// noted says that the claim that noted the claimer is committed.
func (n *claimerNotes) noted(workspace string, t ClaimTerms) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.said == nil || len(n.said) > 1000 {
		n.said = map[string]time.Time{}
	}
	n.said[claimerID(workspace, t)] = time.Now()
}

func claimerID(workspace string, t ClaimTerms) string {
	return fmt.Sprint(workspace, "\x00", t.Owner, "\x00", t.Kind, t.Capabilities, t.Lanes)
}

// Why gives every reason that keeps a task from being claimed, since when, and
// by whom it could be claimed.
func (ws *Workspace) Why(ctx context.Context, ref string) (Why, error) {
	var w Why
	err := ws.read(ctx, "asking why a task waits", func(ctx context.Context, tx *store.Tx) (err error) {
		w = Why{Reasons: []commands.WhyReason{}}
		if w.Task, err = ws.find(ctx, tx, ref); err != nil {
			return err
		}
		for _, look := range []func(context.Context, *store.Tx, *Why) error{ws.whyState, ws.whyHeld, ws.whyFrozen, ws.whyLane, ws.whyInputs, ws.whyDependencies, ws.whyTime, ws.whyCapability, ws.whyLimits} {
			if err := look(ctx, tx, &w); err != nil {
				return err
			}
		}
		keep := len(w.Reasons)
		if w.lapsed { // says so, and keeps nobody
			keep--
		}
		w.Claimable = keep == 0 && len(w.By) > 0
		return nil
	})
	return w, err
}

func (w *Why) add(code commands.Cause, fix string, since, until *time.Time, format string, args ...any) {
	w.Reasons = append(w.Reasons, commands.WhyReason{Code: code, Text: fmt.Sprintf(format, args...), Since: since, Until: until, Fix: fix})
}

// Since is when the task came into its state.
func (w Why) Since() time.Time {
	if t := w.Task; t.EndedAt != nil {
		return *t.EndedAt
	}
	return w.Task.UpdatedAt
}

// figure is the number of the newest reason.
func (w *Why) figure(n float64) { w.Reasons[len(w.Reasons)-1].Figure = &n }

func (ws *Workspace) whyHeld(ctx context.Context, tx *store.Tx, w *Why) error {
	if w.Task.Eligibility != Held {
		return nil
	}
	var name, state, by, frozenBy, frozenWhy string
	var since, expires time.Time
	var frozenSince *time.Time
	var expired, frozen bool
	err := tx.QueryRow(ctx, `SELECT c.peer_name, c.state, c.state_by, c.state_at, least(g.expires_at, 'epoch'::timestamptz + interval '5000 years'), g.expires_at <= statement_timestamp(),
		coalesce(l.frozen, false), coalesce(l.actor, ''), coalesce(l.reason, ''), l.since
		FROM tasks t JOIN connections c ON c.id = t.conn JOIN grants g ON g.conn = c.id LEFT JOIN latches l ON l.conn = c.id WHERE t.id = $1`, w.Task.ID).
		Scan(&name, &state, &by, &since, &expires, &expired, &frozen, &frozenBy, &frozenWhy, &frozenSince)
	if err != nil {
		return err
	}
	before := len(w.Reasons)
	if state != string(store.Active) {
		w.add(commands.CauseConnection, commands.Line("connections", "resume", name), &since, nil, "the connection with %s is %s by %s", name, state, by)
	}
	if expired {
		w.add(commands.CauseGrant, commands.Line("connections", "grant", name, "--expires", "never"), &expires, nil, "the grant of %s has expired", name)
	}
	if frozen {
		w.add(commands.CauseFreeze, "it is unfrozen at "+name, frozenSince, nil, "%s has frozen its agents: %s: %s", name, frozenBy, commands.OneLine(frozenWhy))
	}
	if len(w.Reasons) == before {
		w.add(commands.CauseLink, "", nil, nil, "the link with %s has just come up: what it has sent meanwhile is taken first", name)
	}
	return nil
}

func (ws *Workspace) whyFrozen(ctx context.Context, tx *store.Tx, w *Why) error {
	rows, err := tx.Query(ctx, statement("why_frozen"), w.Task.ID, "")
	if err != nil {
		return err
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Freeze])
	for _, f := range list {
		scope := strings.TrimSuffix(f.Scope+":"+f.Target, ":")
		w.add(commands.CauseFreeze, commands.Line("unfreeze", "--scope", scope, "--reason", "WHY"), &f.Since, nil, "%s is frozen by %s: %s", scope, f.Actor, f.Reason)
	}
	return err
}

func (ws *Workspace) whyLane(ctx context.Context, tx *store.Tx, w *Why) error {
	var l Lane
	err := tx.QueryRow(ctx, `SELECT name, state, reason, actor, since FROM lanes WHERE workspace = $1 AND name = $2 AND state IN ('paused', 'disabled')`,
		ws.name, w.Task.Lane).Scan(&l.Name, &l.State, &l.Reason, &l.Actor, &l.Since)
	if err == pgx.ErrNoRows {
		return nil
	}
	if err == nil {
		w.add(commands.CauseLane, commands.Line("lane", "resume", l.Name), &l.Since, nil, "lane %s is %s by %s%s", l.Name, l.State, l.Actor, because(l.Reason))
	}
	return err
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// whyInputs says how much of the inputs of a task is here.
func (ws *Workspace) whyInputs(ctx context.Context, tx *store.Tx, w *Why) error {
	if w.Task.Unmet == 0 {
		return nil
	}
	var missing int
	var here, all int64
	var since *time.Time
	if err := tx.QueryRow(ctx, statement("why_inputs"), w.Task.ID).Scan(&missing, &here, &all, &since); err != nil || missing == 0 {
		return err
	}
	w.waitsInput = true
	w.add(commands.CauseInput, "", since, nil, "its inputs are on the way: %s are here", commands.SizeOf(here, all))
	w.figure(float64(all - here))
	return nil
}

// maxWhyDependencies bounds what is listed of a large fan-in.
const maxWhyDependencies = 20

func (ws *Workspace) whyDependencies(ctx context.Context, tx *store.Tx, w *Why) error {
	if w.Task.Unmet == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, statement("why_dependencies"), w.Task.ID, maxWhyDependencies)
	if err != nil {
		return err
	}
	var name string
	var state commands.State
	var since time.Time
	n := 0
	_, err = pgx.ForEachRow(rows, []any{&name, &state, &since}, func() error {
		n++
		at, hint := since, ""
		if state.Terminal() {
			hint = commands.Line("backlog", "retry", name)
		}
		w.add(commands.CauseDependency, hint, &at, nil, "it depends on %s, which is %s", name, state)
		return nil
	})
	if w.waitsInput {
		n++
	}
	if more := w.Task.Unmet - n; more > 0 {
		w.add(commands.CauseDependency, "", nil, nil, "and on %d more", more)
	}
	return err
}

func (ws *Workspace) whyTime(_ context.Context, _ *store.Tx, w *Why) error {
	if t := w.Task; t.Eligibility == NotBefore {
		w.add(commands.CauseNotBefore, "", nil, t.NotBefore, "it waits for its time")
	}
	return nil
}

// whyCapability finds who could claim the task; nobody of late is a reason.
func (ws *Workspace) whyCapability(ctx context.Context, tx *store.Tx, w *Why) error {
	rows, err := tx.Query(ctx, statement("why_capability"),
		ws.name, w.Task.Kind, w.Task.Capabilities, w.Task.Lane, claimerMemory)
	if err != nil {
		return err
	}
	if w.By, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Claimer]); err != nil {
		return err
	}
	if len(w.By) > 0 || w.Task.State != commands.Queued && !w.lapsed {
		return nil
	}
	needs := "no claimer was here within the hour"
	if len(w.Task.Capabilities) > 0 {
		needs = "no claimer of the last hour has all of: " + strings.Join(w.Task.Capabilities, ", ")
	}
	words := []string{"backlog", "claim", "--owner", "NAME", "--lane", w.Task.Lane}
	for _, c := range w.Task.Capabilities {
		words = append(words, "--capability", c)
	}
	w.add(commands.CauseCapability, commands.Line(words...), nil, nil, "%s", needs)
	return nil
}

func (ws *Workspace) whyLimits(ctx context.Context, tx *store.Tx, w *Why) error {
	rows, err := tx.Query(ctx, statement("why_limits"), ws.name, "", w.Task.ID)
	if err != nil {
		return err
	}
	var what, name string
	var room, amount int64
	var resets *time.Time
	_, err = pgx.ForEachRow(rows, []any{&what, &name, &room, &amount, &resets}, func() error {
		switch what {
		case "quota":
			w.add(commands.CauseQuota, commands.Line("quota", "show", name), nil, nil, "quota %s has no room", name)
			w.figure(float64(room))
		case "budget":
			w.add(commands.CauseBudget, commands.Line("budget", "show", name), nil, resets, "budget %s has %s left and the task may take %s", name, Amount(room), Amount(amount))
			w.figure(float64(room) / float64(Unit))
		case "limit":
			w.add(commands.CauseLimit, commands.Line("spoke", "policy", "reload"), nil, resets, "account %s has met a limit of its provider; its tasks wait", name)
		case "account":
			w.add(commands.CauseBudget, commands.Line("budget", "create", "NAME", "--scope", "account:"+name, "--dimension", "DIMENSION", "--hard", "AMOUNT"), nil, nil, "account %s has no budget, so it may spend nothing", name)
		}
		return nil
	})
	return err
}

// Up to where it is counted what stands before a task, and in how many classes.
const (
	maxBeforeClasses = 64
)

// Before counts the tasks of the same connection and lane that are claimed before one that stands ready. Of those of
// others it says nothing: whose turn it is between queues is drawn. It is nil where that is not known.
func (ws *Workspace) Before(ctx context.Context, task string) (before *int, err error) {
	err = ws.read(ctx, "asking what stands before a task", func(ctx context.Context, tx *store.Tx) error {
		err := tx.QueryRow(ctx, statement("why_before"), ws.name, task, commands.MaxBefore+1, maxBeforeClasses).Scan(&before)
		if err == pgx.ErrNoRows {
			return nil
		}
		return err
	})
	return before, err
}

// whyNot refuses a claim of a named task, with what stands in its way.
func (ws *Workspace) whyNot(ctx context.Context, t ClaimTerms) error {
	w, err := ws.Why(ctx, t.Task)
	if err != nil {
		return err
	}
	for _, c := range w.Task.Capabilities {
		if !slices.Contains(t.Capabilities, c) {
			return commands.Refuse(commands.Capability, "task %s needs capability %s", w.Task.Name(), c).Hinting("claim it with --capability %s", c)
		}
	}
	code, what := commands.Conflict, "somebody else was faster"
	for _, r := range w.Reasons {
		if r.Code != commands.CauseCapability {
			what = r.Text
			if r.Code == commands.CauseBudget || r.Code == commands.CauseQuota {
				code = commands.OverBudget
			}
			break
		}
	}
	return commands.Refuse(code, "task %s cannot be claimed: %s", w.Task.Name(), what).Hinting("see").Running("backlog", "why", w.Task.Name())
}
