package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
)

// A Mirror is a hub's view of a task on a spoke: what the spoke's signed words
// say, and what the hub asked for.
type Mirror struct {
	Task        string          `json:"id"`
	Spoke       string          `json:"spoke,omitempty"`
	Conn        string          `json:"conn"`
	ConnState   ConnState       `json:"conn_state"`
	Title       string          `json:"title,omitempty"`
	Priority    int             `json:"priority"`
	State       commands.State  `json:"state"`
	Reason      commands.Reason `json:"state_reason,omitempty"`
	Refusal     json.RawMessage `json:"refusal,omitempty"`
	Refusals    []Refusal       `json:"refusals,omitempty"` // every one, the last included
	Attempt     int             `json:"attempt"`
	CreatedBy   string          `json:"created_by"`
	Schedule    string          `json:"schedule,omitempty"`   // the name of the one that ordered it
	RetryOf     string          `json:"retry_of,omitempty"`   // the agent whose order was given anew with this one
	RetriedAs   string          `json:"retried_as,omitempty"` // the agent that was ordered anew in place of this one
	Command     string          `json:"command"`
	Spec        json.RawMessage `json:"spec,omitempty"` // not for everybody who sees the rest
	Labels      commands.Labels `json:"labels,omitempty"`
	Result      json.RawMessage `json:"result,omitempty"`
	Kill        json.RawMessage `json:"kill,omitempty"`         // the order that the result names, or the first kill, or the first cancel; none where the host's own word was it
	RefusedKill json.RawMessage `json:"refused_kill,omitempty"` // the newest order to end it, where its spoke has refused that
	Pause       json.RawMessage `json:"pause,omitempty"`        // the last order to stand still or to go on, an [OrderedPause]; of a host its own word, too
	Review      json.RawMessage `json:"review,omitempty"`       // the last word on what it has delivered, an [OrderedReview]; of a host as that took it
	Policy      string          `json:"policy,omitempty"`       // version of the spoke's policy that decided last
	Isolation   string          `json:"isolation,omitempty"`    // what the last agent was confined by, as its spoke says, one of [commands.IsolationLevels]
	ExpiresAt   time.Time       `json:"expires_at"`
	CreatedAt   time.Time       `json:"created_at"`
	UpdatedAt   time.Time       `json:"updated_at"`

	// Attempts are the ends of those that another attempt follows, or may.
	Attempts []commands.Ended `json:"attempts,omitempty"`

	// When it happened by the spoke's clock, as it says, and when the hub heard of
	// it. What no spoke tells, as the end with its connection, has the hub's time
	// alone.
	AcceptedAt   *time.Time `json:"accepted_at,omitempty"`
	StartedAt    *time.Time `json:"started_at,omitempty"`
	EndedAt      *time.Time `json:"ended_at,omitempty"`
	AcceptedTold *time.Time `json:"accepted_told_at,omitempty"`
	StartedTold  *time.Time `json:"started_told_at,omitempty"`
	EndedTold    *time.Time `json:"ended_told_at,omitempty"`

	ArchivedAt *time.Time `json:"archived_at,omitempty"` // lists leave it out since then

	// Unheard is of an agent that its hub has ended by itself: its spoke has not told how it ended, may run it, and is sent a kill.
	Unheard bool `json:"unheard,omitempty"`

	ShortID string `db:"-" json:"short_id"` // see [commands.ShortID]
}

// Failure is how the last attempt failed, as far as the spoke has told; nil where none has, or one after it has succeeded.
func (m Mirror) Failure() (last *commands.LastError) {
	if m.State == commands.Completed {
		return nil
	}
	take := func(e *commands.LastError, at int64) {
		if e != nil && (last == nil || e.Attempt > last.Attempt) {
			last, e.At = e, time.UnixMilli(at)
		}
	}
	for _, e := range m.Attempts {
		take(commands.ErrorOf(e.Attempt, e.Outcome, e.Reason, e.Exit, nil), e.At)
	}
	if r, ok := commands.ReadResult(m.Result); ok {
		take(commands.ErrorOf(r.Attempt, r.Outcome, r.Reason, r.Exit, r.Reported), r.EndedAt)
	}
	return last
}

// Between reports whether the last attempt has ended, as its spoke has told, and no end of the agent itself was told: it waited for the next one.
func (m Mirror) Between() bool {
	return slices.ContainsFunc(m.Attempts, func(e commands.Ended) bool { return e.Attempt == m.Attempt })
}

const mirrorColumns = `m.task::text, c.peer_name, m.conn::text, c.state, m.title, m.priority, m.state, m.reason, m.refusal, m.refusals, m.attempt, m.created_by, coalesce(m.schedule, ''),
	coalesce(m.spec->>'retry_of', ''), coalesce((SELECT x.task::text FROM mirrors x WHERE x.spec->>'retry_of' = m.task::text LIMIT 1), ''),
	m.command::text, m.spec - 'sealed', m.labels,
	CASE WHEN m.delivered ? 'bundle' AND NOT m.result ? 'bundle' THEN m.result || jsonb_build_object('bundle', m.delivered->'bundle') ELSE m.result END,
	CASE WHEN m.reason <> 'operator' THEN coalesce((SELECT k FROM jsonb_array_elements(m.kill) AS k WHERE k->>'command' = m.result->>'kill' LIMIT 1),
		jsonb_path_query_first(m.kill, '$[*] ? (!(@.state == "refused") && !exists(@.cancel))'), jsonb_path_query_first(m.kill, '$[*] ? (!(@.state == "refused"))')) END,
	CASE WHEN m.kill->-1->>'state' = 'refused' THEN m.kill->-1 END, m.pause, m.review, m.policy, m.isolation, m.expires_at, m.created_at, m.updated_at, m.attempts,
	coalesce(m.accepted_said, m.accepted_at), coalesce(m.started_said, m.started_at), coalesce(m.ended_said, m.ended_at),
	CASE WHEN m.accepted_said IS NOT NULL THEN m.accepted_at END, CASE WHEN m.started_said IS NOT NULL THEN m.started_at END, CASE WHEN m.ended_said IS NOT NULL THEN m.ended_at END, m.archived_at,
	` + unheardHere + ` AND NOT has_ended(c.state)`

// unheardHere is true of a mirror m that has ended by the word of nobody but its hub. A connection that has ended tells nothing more.
const unheardHere = `m.ended_at IS NOT NULL AND m.final_digest IS NULL AND m.result IS NULL AND m.refusal IS NULL
	AND m.state IN ('expired', 'cancelled', 'unavailable') AND m.reason IN ('command_expired', 'kill_requested', 'cancel_requested')`

// FindMirrors returns the mirrors that text names, the newest 20: those whose ids
// it names, as [commands.NamedIDs] has it, and those that have it as their title, unless it is all
// of an id or of a short one.
func (db *DB) FindMirrors(ctx context.Context, text string) (list []Mirror, err error) {
	if ids, ok := commands.NamedIDs(text); ok {
		which := `m.task BETWEEN $1::text::uuid AND $2::text::uuid`
		if ids.Tail {
			which = `m.task = ANY (ARRAY (SELECT task FROM mirrors WHERE ` + shortBetween("task") + `))`
		}
		list, err = db.mirrors(ctx, `WHERE `+which+` ORDER BY m.task DESC LIMIT 20`, ids.Low, ids.High)
	}
	// A part of an id may be a title, too: then who names an agent by it has to say more.
	named := len(list) > 0 && (len(text) == len(list[0].ShortID) || len(text) == len(list[0].Task))
	if err != nil || named || text == "" || !utf8.ValidString(text) || strings.Contains(text, "\x00") {
		return list, err
	}
	titled, err := db.mirrors(ctx, `WHERE m.title = $1 AND m.title <> '' ORDER BY m.task DESC LIMIT 20`, text)
	for _, m := range titled {
		if !slices.ContainsFunc(list, func(have Mirror) bool { return have.Task == m.Task }) {
			list = append(list, m)
		}
	}
	return list, err
}

// shortBetween is true of ids whose last digits are from $1 to $2: 200 at most, in the order that the index of short ids has. In
// any other order a planner that takes them for frequent walks another index until it has found some.
func shortBetween(id string) string {
	return fmt.Sprintf(`substring(uuid_send(%[1]s) FROM 12) BETWEEN decode($1, 'hex') AND decode($2, 'hex') ORDER BY substring(uuid_send(%[1]s) FROM 12) LIMIT 200`, id)
}

// MirrorsOf returns the mirrors of tasks, named by their whole ids, in any order. An unknown
// one has none.
func (db *DB) MirrorsOf(ctx context.Context, tasks []string) ([]Mirror, error) {
	return db.mirrors(ctx, `WHERE m.task = ANY ($1::uuid[])`, tasks)
}

func (db *DB) mirrors(ctx context.Context, which string, args ...any) ([]Mirror, error) {
	var list []Mirror
	err := db.retry(ctx, func(ctx context.Context) error {
		rows, err := db.pool.Query(ctx, `SELECT `+mirrorColumns+` FROM mirrors m JOIN connections c ON c.id = m.conn `+which, args...)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Mirror])
		return err
	})
	for i := range list {
		list[i].ShortID = commands.ShortID(list[i].Task)
	}
	if err != nil {
		return nil, fmt.Errorf("reading agents: %w", err)
	}
	return list, nil
}

// RetriesBefore counts the orders that led to a task by retries, and says whether its spoke was
// chosen by the hub.
func (db *DB) RetriesBefore(ctx context.Context, task string) (n int, anywhere bool, err error) {
	err = db.Read(ctx, "counting the retries of task "+task, func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `WITH RECURSIVE chain (task, n) AS (
				SELECT $1::uuid, 0
				UNION ALL
				SELECT (m.spec->>'retry_of')::uuid, c.n + 1 FROM chain c JOIN mirrors m ON m.task = c.task WHERE m.spec->>'retry_of' IS NOT NULL AND c.n < 100
			) SELECT max(n), (SELECT anywhere FROM mirrors WHERE task = $1) FROM chain`, task).Scan(&n, &anywhere)
	})
	return n, anywhere, err
}

// A ReceiptRow is one signed word about a task, in the order its sender gave.
type ReceiptRow struct {
	Spoke    string          `json:"spoke"`
	Kind     string          `json:"kind"`
	Answers  string          `json:"answers,omitempty"` // the kind of the command that it answers; "" = that is not known any more
	Seq      int64           `json:"seq"`
	At       time.Time       `json:"received_at"`
	Code     string          `json:"code,omitempty"`
	Late     bool            `json:"late,omitempty"`     // it came after the end, and changed nothing
	Envelope json.RawMessage `json:"envelope,omitempty"` // none of what was refused, or has become too old
}

// Receipts returns what was received about a task from the spoke that has it and
// from those that refused it before, ordered by sequence for each.
func (db *DB) Receipts(ctx context.Context, task string) ([]ReceiptRow, error) {
	rows, err := db.pool.Query(ctx, `SELECT c.peer_name, i.kind, coalesce(o.kind, CASE WHEN i.re = m.command THEN 'agent.spawn' END, ''), i.seq, i.received_at, i.code, coalesce(i.received_at > m.ended_at, false), i.envelope
		FROM mirrors m JOIN inbox i ON i.task = m.task AND i.re IS NOT NULL JOIN connections c ON c.id = i.conn LEFT JOIN outbox o ON o.id = i.re
		WHERE m.task = $1 AND (i.conn = m.conn OR m.refusals @> jsonb_build_array(jsonb_build_object('conn', i.conn))) ORDER BY i.conn = m.conn, i.conn, i.seq`, task)
	if err != nil {
		return nil, fmt.Errorf("reading the receipts of task %s: %w", task, err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (ReceiptRow, error) {
		var r ReceiptRow
		var envelope []byte
		err := row.Scan(&r.Spoke, &r.Kind, &r.Answers, &r.Seq, &r.At, &r.Code, &r.Late, &envelope)
		if len(envelope) > 0 {
			r.Envelope = envelope
		}
		return r, err
	})
}

// Answered returns the newest answer to a question, nil while there is none. Over a
// connection that has ended none will come: it is then refused with [signing.ConnState].
func (db *DB) Answered(ctx context.Context, question string) (envelope []byte, err error) {
	var name string
	var state ConnState
	err = db.pool.QueryRow(ctx, `SELECT i.envelope, c.peer_name, c.state FROM outbox o JOIN connections c ON c.id = o.conn
		LEFT JOIN inbox i ON i.conn = o.conn AND i.re = o.id AND i.envelope <> '' WHERE o.id = $1 ORDER BY i.seq DESC NULLS LAST LIMIT 1`, question).Scan(&envelope, &name, &state)
	if err == pgx.ErrNoRows {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for the answer to %s: %w", question, err)
	}
	if r := closedTo(name, state); r != nil && envelope == nil {
		return nil, r
	}
	return envelope, nil
}

// Taken reports whether the peer has answered a command.
func (db *DB) Taken(ctx context.Context, command string) (taken bool, err error) {
	err = db.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM outbox o JOIN inbox i ON i.re = o.id AND (i.conn = o.conn) IS TRUE WHERE o.id = $1)`, command).Scan(&taken)
	if err != nil {
		return false, fmt.Errorf("looking for answers to %s: %w", command, err)
	}
	return taken, nil
}

// EndMirrors ends what was ordered over a connection that ends, in the
// transaction of its end. What runs there may go on: nobody will tell.
func EndMirrors(ctx context.Context, tx *Tx, conn string) error {
	_, err := tx.Exec(ctx, `
		WITH ended AS (
			UPDATE mirrors SET state = 'unavailable', reason = 'link_revoked', ended_at = clock_timestamp(), updated_at = clock_timestamp()
			WHERE task = ANY (ARRAY (SELECT task FROM mirrors WHERE conn = $1 AND ended_at IS NULL ORDER BY task FOR UPDATE)) AND NOT is_terminal(state) RETURNING task
		)
		INSERT INTO audit (actor, action, object, code, conn) SELECT 'self', 'mirror.unavailable', task::text, 'link_revoked', $1 FROM ended`, conn)
	if err != nil {
		return fmt.Errorf("ending what was ordered over connection %s: %w", conn, err)
	}
	return nil
}
