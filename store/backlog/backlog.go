package backlog

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Backlog is what an instance has to do, in all its workspaces.
type Backlog struct {
	// Found returns the last attempt of a task of conn of which this host has something; 0 = there is nothing. The error is a fault of this
	// host: it cannot be told now, of this task alone where it is [ErrUntold]. It is set before the backlog is used; nil = nobody looks.
	Found func(conn, task string) (int, error)

	// InputsMost is how many bytes the inputs of all tasks of a connection may have, 0 = any. It is set before the backlog is used; nil = any.
	InputsMost func() int64

	db        *store.DB
	moved     func(ctx context.Context, tx *store.Tx, facts []Moved) error
	grantKeys grantKeys
	classes   classIDs
	lanes     laneNames
	claimers  claimerNotes
	starts    starts
	begun     begun
	listeners *listeners
	waits     atomic.Bool  // see Waits
	pruned    atomic.Int64 // when this process last asked for it, in seconds of Unix time
}

// Open returns the backlog in db. moved is told in the same transaction when
// tasks that a connection asked for have moved; an error of it undoes the move.
func Open(db *store.DB, moved func(ctx context.Context, tx *store.Tx, facts []Moved) error) *Backlog {
	return &Backlog{db: db, moved: moved, listeners: newListeners()}
}

// A Workspace is one workspace's tasks, as one actor sees and changes them. The
// database itself keeps what belongs to other workspaces out of sight.
type Workspace struct {
	backlog *Backlog
	name    string
	actor   string
	bound   bool // see Bound
}

// MainWorkspace is the workspace of everything that names no other.
const MainWorkspace = store.Workspace

// validName reports whether s is 1 to 63 lower-case letters, digits and hyphens,
// of which the first is no hyphen.
func validName(s string) bool {
	return len(s) <= 63 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == "" && s != "" && s[0] != '-'
}

// CheckWorkspace refuses what no workspace is called.
func CheckWorkspace(name string) error {
	if !validName(name) {
		return commands.Refuse(commands.Validation, "workspace %q is not 1 to 63 lower-case letters, digits and hyphens", commands.Clip(name))
	}
	return nil
}

// Workspace returns the workspace with that name. The audit names actor for
// what is done through it.
func (b *Backlog) Workspace(name, actor string) (*Workspace, error) {
	if err := CheckWorkspace(name); err != nil {
		return nil, err
	}
	return &Workspace{b, name, actor, false}, nil
}

// Bound returns the workspace for who may not change what binds the whole instance, nor
// see or stop the agents that hubs have ordered on it. Audit and Stats tell of them all the same: docs/threats.md says so.
func (ws *Workspace) Bound() *Workspace { return &Workspace{ws.backlog, ws.name, ws.actor, true} }

// visible leaves out agents where the workspace is bound.
func (ws *Workspace) visible(list []Task) []Task {
	return slices.DeleteFunc(list, func(t Task) bool { return ws.bound && t.Kind == AgentKind })
}

// Name returns the name of the workspace.
func (ws *Workspace) Name() string { return ws.name }

// tx runs fn in a transaction that sees only the workspace.
func (ws *Workspace) tx(ctx context.Context, doing string, fn func(context.Context, *store.Tx) error) error {
	return ws.backlog.db.TxIn(ctx, doing, ws.name, fn)
}

// read is tx for what changes nothing.
func (ws *Workspace) read(ctx context.Context, doing string, fn func(context.Context, *store.Tx) error) error {
	return ws.backlog.db.ReadIn(ctx, doing, ws.name, fn)
}

// A Task is one task of a backlog as it stands, with what its board shows.
type Task struct {
	ID             string              `json:"id"`
	ShortID        string              `json:"short_id"` // see [commands.ShortID]
	Key            string              `json:"key,omitempty"`
	Title          string              `json:"title"`
	Body           string              `json:"body,omitempty"`
	Phase          string              `json:"phase,omitempty"`
	Priority       int                 `json:"priority"`
	Status         BoardStatus         `json:"status"`
	State          commands.State      `json:"state"`
	Eligibility    Eligibility         `json:"eligibility,omitempty"` // of a queued task
	Reason         commands.Reason     `json:"state_reason,omitempty"`
	Kind           string              `json:"kind"`
	Lane           string              `json:"lane"`
	Capabilities   []string            `json:"capabilities,omitempty"`
	Account        string              `json:"account,omitempty"`
	Estimate       map[string]Amount   `json:"estimate,omitempty"`
	DependsOn      []string            `json:"depends_on"`           // keys, or ids where there is no key
	Unmet          int                 `json:"unmet"`                // dependencies that still keep it from being claimed
	Blocks         []string            `json:"blocks,omitempty"`     // of [Workspace.Show]: who waits for it, named as DependsOn, the first MaxBlocks
	Dependents     int                 `json:"dependents,omitempty"` // of [Workspace.Show]: how many wait for it, counted as far as MaxDependencies
	OnFailedDep    string              `json:"on_failed_dependency"`
	Owner          string              `json:"claim_owner,omitempty"`
	ClaimedAt      *time.Time          `json:"claimed_at,omitempty"`
	LeaseUntil     *time.Time          `json:"lease_until,omitempty"`
	Attempts       int                 `json:"attempts"` // claims so far
	Retries        int                 `json:"retries"`
	MaxRetries     int                 `json:"max_retries"`
	BackoffMS      int64               `json:"backoff_ms,omitempty"` // before the first retry at most; 0 = the usual one
	LastError      *commands.LastError `json:"last_error,omitempty"` // nil = none has failed, or one after it has succeeded
	NotBefore      *time.Time          `json:"not_before,omitempty"`
	Acceptance     json.RawMessage     `json:"acceptance,omitempty"`
	IdempotencyKey string              `json:"idempotency_key,omitempty"`
	Result         json.RawMessage     `json:"result,omitempty"`
	CreatedBy      string              `json:"created_by,omitempty"`
	CreatedAt      time.Time           `json:"created_at"`
	UpdatedAt      time.Time           `json:"updated_at"`
	StartedAt      *time.Time          `json:"started_at,omitempty"`
	EndedAt        *time.Time          `json:"ended_at,omitempty"`
	ArchivedAt     *time.Time          `json:"archived_at,omitempty"` // lists leave it out since then

	epoch int64
	asked bool // by a hub
}

// Name is what people call the task: its key, else its short id.
func (t Task) Name() string { return cmp.Or(t.Key, commands.ShortID(t.ID)) }

// Ref is what no other task of the workspace is called: its key, else its whole id.
func (t Task) Ref() string { return cmp.Or(t.Key, t.ID) }

// A BoardStatus is the coarse state of a task on a board. It is
// derived, never stored.
type BoardStatus string

// The four columns of a board.
const (
	BoardReady   BoardStatus = "ready"   // queued, claimable or not yet
	BoardClaimed BoardStatus = "claimed" // somebody holds it
	BoardBlocked BoardStatus = "blocked" // parked by somebody's decision
	BoardDone    BoardStatus = "done"    // ended, well or badly
)

// BoardStatusOf derives the board's column from a state.
func BoardStatusOf(s commands.State) BoardStatus {
	switch {
	case s.Terminal():
		return BoardDone
	case s == commands.Queued:
		return BoardReady
	case s == commands.Blocked, s == commands.Paused:
		return BoardBlocked
	}
	return BoardClaimed
}

// An Eligibility says whether a queued task can be claimed, or what keeps it
// from it. It is derived, never stored.
type Eligibility string

// What a queued task may be.
const (
	EligibleReady      Eligibility = "ready"
	WaitingDeps        Eligibility = "waiting_deps"
	NotBefore          Eligibility = "not_before"
	OverBudget         Eligibility = "over_budget"
	RateLimited        Eligibility = "rate_limited"
	AccountLimited     Eligibility = "account_limited" // its account has met a limit of its provider's
	LanePaused         Eligibility = "lane_paused"
	EligibleFrozen     Eligibility = "frozen"
	Held               Eligibility = "held" // its connection is not active, or its grant has expired
	EligibilityUnknown Eligibility = ""
)

// String writes a fence as one word: task/attempt/epoch.
func (f Fence) String() string { return fmt.Sprintf("%s/%d/%d", f.Task, f.Attempt, f.Epoch) }

// ParseFence reads what [Fence.String] wrote.
func ParseFence(s string) (f Fence, err error) {
	task, numbers, _ := strings.Cut(s, "/")
	attempt, epoch, _ := strings.Cut(numbers, "/")
	f.Task = task
	var wrong [2]error
	f.Attempt, wrong[0] = strconv.Atoi(attempt)
	f.Epoch, wrong[1] = strconv.ParseInt(epoch, 10, 64)
	if wrong[0] != nil || wrong[1] != nil || len(task) != 36 || f.Attempt < 1 || f.Attempt > 999_999_999 || f.Epoch < 1 || f.String() != s || !looksLikeID(task) || task != strings.ToLower(task) {
		return Fence{}, commands.Refuse(commands.Validation, "%q is not a fence; it looks like TASK/ATTEMPT/EPOCH, as claim prints it", commands.Clip(s))
	}
	return f, nil
}
