package backlog

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// Kinds of tasks: a card is worked on by whoever claims it, an agent is run by
// the spoke itself.
const (
	CardKind  = "card"
	AgentKind = "agent"
)

// DefaultLane is the lane of everything that names no other.
const DefaultLane = "default"

// Limits of a task that a person or a program creates here.
const (
	MaxKey          = 200
	MaxBody         = 64 << 10
	MaxAcceptance   = 64 << 10
	MaxPhase        = 100
	MaxDependencies = 10_000
	MaxBlocks       = 100 // are named of those that wait for a task
	MaxCapBytes     = commands.MaxCapabilityBytes
	MaxDimensions   = 16
	maxCreate       = 10_000
)

// A TaskSpec is a task to be created. Only Title is required.
type TaskSpec struct {
	Key            string            `json:"key,omitempty"` // the caller's own id, unique in the workspace
	Title          string            `json:"title"`
	Body           string            `json:"body,omitempty"`
	Phase          string            `json:"phase,omitempty"`
	Priority       int               `json:"priority,omitempty"` // -100..100, higher sooner
	DependsOn      []string          `json:"depends_on,omitempty"`
	Acceptance     json.RawMessage   `json:"acceptance,omitempty"`
	IdempotencyKey string            `json:"idempotency_key,omitempty"`
	Lane           string            `json:"lane,omitempty"` // "" = [DefaultLane]
	Capabilities   []string          `json:"capabilities,omitempty"`
	Account        string            `json:"account,omitempty"`  // whose budget pays
	Estimate       map[string]Amount `json:"estimate,omitempty"` // what an attempt reserves, by dimension
	NotBefore      time.Time         `json:"not_before,omitzero"`
	MaxRetries     int               `json:"max_retries,omitempty"`
	BackoffMS      int64             `json:"backoff_ms,omitempty"`           // before the first retry at most; 0 = the usual one
	OnFailedDep    string            `json:"on_failed_dependency,omitempty"` // "" = hold, cancel, ignore
}

// Created says which task a spec became. Existing means that the idempotency
// key was used before, with the same content.
type Created struct {
	ID       string `json:"id"`
	Key      string `json:"key,omitempty"`
	Existing bool   `json:"existing"`
}

// validDimension reports whether s is a name such as usd or tokens.
func validDimension(s string) bool {
	return len(s) <= 31 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == "" && s != "" && s[0] >= 'a' && s[0] <= 'z'
}

// Validate checks the spec against the limits; the error is a [*commands.Refused].
func (s *TaskSpec) Validate() error {
	for _, f := range []struct {
		name, value string
		limit       int
		oneLine     bool
	}{{"the key", s.Key, MaxKey, true}, {"the title", s.Title, commands.MaxTitle, true}, {"the body", s.Body, MaxBody, false},
		{"the phase", s.Phase, MaxPhase, true}, {"the idempotency key", s.IdempotencyKey, MaxKey, true}} {
		if err := checkText(f.name, f.value, f.limit, f.oneLine); err != nil {
			return err
		}
	}
	switch {
	case strings.TrimSpace(s.Title) == "":
		return commands.Refuse(commands.Validation, "a task needs a title").Hinting("a line that people see, as in").Running("backlog", "create", "--title", "TEXT")
	case s.Key != "" && (strings.TrimSpace(s.Key) != s.Key || looksLikeID(s.Key)):
		return commands.Refuse(commands.Validation, "the key %q begins or ends with a space, or looks like an id of ours", commands.Clip(s.Key))
	case s.Key == "." || s.Key == "..":
		return commands.Refuse(commands.Validation, "the key %q cannot stand in a path of the API", s.Key)
	case s.Priority < commands.MinPriority || s.Priority > commands.MaxPriority:
		return commands.Refuse(commands.Validation, "priority %d is outside %d..%d", s.Priority, commands.MinPriority, commands.MaxPriority)
	case s.MaxRetries < 0 || s.MaxRetries > commands.MaxRetries:
		return commands.Refuse(commands.Validation, "max retries %d is outside 0..%d", s.MaxRetries, commands.MaxRetries)
	case s.BackoffMS < 0 || s.BackoffMS > commands.MaxBackoff.Milliseconds():
		return commands.Refuse(commands.Validation, "a back-off of %s is outside 0..%s", time.Duration(s.BackoffMS)*time.Millisecond, commands.Lasting(commands.MaxBackoff))
	case s.Lane != "" && !validName(s.Lane):
		return commands.Refuse(commands.Validation, "lane %q is not 1 to 63 lower-case letters, digits and hyphens", commands.Clip(s.Lane))
	case s.Account != "" && !validName(s.Account):
		return commands.Refuse(commands.Validation, "account %q is not 1 to 63 lower-case letters, digits and hyphens", commands.Clip(s.Account))
	case len(s.DependsOn) > MaxDependencies:
		return commands.Refuse(commands.Validation, "%d dependencies, limit %d", len(s.DependsOn), MaxDependencies)
	case !slices.Contains([]string{"", "hold", "cancel", "ignore"}, s.OnFailedDep):
		return commands.Refuse(commands.Validation, "%q is not a policy for failed dependencies: hold, cancel or ignore", commands.Clip(s.OnFailedDep))
	case len(s.Acceptance) > MaxAcceptance:
		return commands.Refuse(commands.Validation, "the acceptance criteria are %d bytes, limit %d", len(s.Acceptance), MaxAcceptance)
	}
	if err := s.checkAcceptance(); err != nil {
		return err
	}
	if err := checkCapabilities(s.Capabilities); err != nil {
		return err
	}
	return checkEstimate(s.Estimate)
}

// checkAcceptance wants what a board can show: criteria or an object of them.
func (s *TaskSpec) checkAcceptance() error {
	if len(s.Acceptance) == 0 {
		return nil
	}
	var list []string
	var object map[string]any
	if json.Unmarshal(s.Acceptance, &list) != nil && json.Unmarshal(s.Acceptance, &object) != nil {
		return commands.Refuse(commands.Validation, "the acceptance criteria are not a JSON array of strings or a JSON object")
	}
	return nil
}

func checkText(name, s string, limit int, oneLine bool) error {
	switch {
	case len(s) > limit:
		return commands.Refuse(commands.Validation, "%s is %d bytes, limit %d", name, len(s), limit)
	case !utf8.ValidString(s) || strings.ContainsRune(s, 0):
		return commands.Refuse(commands.Validation, "%s contains a NUL or is not valid UTF-8", name)
	case oneLine && strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f }):
		return commands.Refuse(commands.Validation, "%s contains a line break or another control character", name)
	}
	return nil
}

func checkCapabilities(list []string) error {
	probe := commands.Spawn{Task: "00000000-0000-4000-8000-000000000000", Runtime: commands.RuntimeNoop, Capabilities: list}
	total := 0
	for _, c := range list {
		total += len(c)
	}
	if total > MaxCapBytes {
		return commands.Refuse(commands.Validation, "the capabilities are %d bytes, limit %d", total, MaxCapBytes)
	}
	return probe.Validate()
}

func checkEstimate(m map[string]Amount) error {
	if len(m) > MaxDimensions {
		return commands.Refuse(commands.Validation, "an estimate of %d dimensions, limit %d", len(m), MaxDimensions)
	}
	for d, a := range m {
		if !validDimension(d) || a < 0 || a > maxAmount {
			return commands.Refuse(commands.Validation, "%s=%s is not an amount: a name such as usd or tokens and a number from 0", commands.Clip(d), a)
		}
	}
	return nil
}

func looksLikeID(s string) bool {
	_, err := uuid.Parse(s)
	return err == nil
}

func (s *TaskSpec) laneName() string {
	if s.Lane == "" {
		return DefaultLane
	}
	return s.Lane
}

// class is what a spec shares with others that the same claimers may have.
func (s *TaskSpec) class() classSpec {
	caps := slices.Compact(slices.Sorted(slices.Values(s.Capabilities)))
	if caps == nil {
		caps = []string{}
	}
	return classSpec{lane: s.laneName(), kind: CardKind, capabilities: caps, account: s.Account, sizes: sizesOf(s.Estimate)}
}

// estimate is what an attempt reserves; nil for nothing.
func (s *TaskSpec) estimate() amounts {
	var m amounts
	for d, a := range s.Estimate {
		if a > 0 {
			if m == nil {
				m = amounts{}
			}
			m[d] = int64(a)
		}
	}
	return m
}

func (s *TaskSpec) digest() ([]byte, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(raw)
	return sum[:], nil
}

// classSpec names a class; see the table classes.
type classSpec struct {
	lane, kind   string
	capabilities []string
	account      string
	conn         string
	sizes        sizes
}

func (c classSpec) id() string { return fmt.Sprint(c) }

// classIDs remember the classes that this process has met. A class never changes;
// one that nobody has used for days is pruned, so each is looked up again, and
// marked as used, within the hour.
type classIDs struct{ byName sync.Map }

type classID struct {
	id   int
	seen time.Time // before it was looked up
}

// forgetClass is how long a class is remembered without being looked up.
const forgetClass = time.Hour

// of finds or makes a class of the workspace. One that was made is remembered
// from the next time on: the transaction that made it may yet fail.
func (k *classIDs) of(ctx context.Context, tx *store.Tx, workspace string, c classSpec) (id int, err error) {
	name := workspace + " " + c.id()
	if known, ok := k.byName.Load(name); ok && time.Since(known.(classID).seen) < forgetClass {
		return known.(classID).id, nil
	}
	now := time.Now()
	args := []any{workspace, c.lane, c.kind, c.capabilities, c.account, c.conn, c.sizes}
	var lasting, unused bool
	err = tx.QueryRow(ctx, statement("find_class"), args...).Scan(&id, &lasting, &unused)
	if err == nil && unused {
		var tag pgconn.CommandTag
		if tag, err = tx.Exec(ctx, statement("see_class"), id); err == nil && tag.RowsAffected() == 0 {
			return 0, store.ErrRaced // somebody else says so too, or prunes it
		}
	}
	if err == pgx.ErrNoRows {
		err = tx.QueryRow(ctx, `SELECT intern_class($1, $2, $3, $4, $5, nullif($6, '')::uuid, NULL, $7)`, args...).Scan(&id)
	}
	if err != nil {
		return 0, fmt.Errorf("interning a class of tasks: %w", err)
	}
	if lasting {
		k.byName.Store(name, classID{id, now})
	}
	return id, nil
}

// Create adds tasks, all or none. A spec whose idempotency key was used before
// with the same content finds that task; with other content it is a conflict. A
// dependency is a key or an id that exists, or the key of an earlier spec of
// the same call.
func (ws *Workspace) Create(ctx context.Context, specs ...TaskSpec) ([]Created, error) {
	if len(specs) > maxCreate {
		return nil, commands.Refuse(commands.Validation, "%d tasks in one call, limit %d", len(specs), maxCreate)
	}
	for i := range specs {
		if err := specs[i].Validate(); err != nil {
			return nil, err
		}
	}
	c := &creation{ws: ws, specs: specs}
	if err := c.prepare(); err != nil {
		return nil, err
	}
	err := ws.tx(ctx, "creating tasks", c.run)
	return c.out, refusedJSON("the acceptance criteria", err)
}
