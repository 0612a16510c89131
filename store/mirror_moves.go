package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// A fold is what all reports about one task in a batch add up to: reports may
// come in any order, so each part keeps the newest by sequence.
type fold struct {
	message   *Incoming // one of the fold, for the audit
	all       []*Incoming
	conn      string
	task      string // "" in a refusal of a body that could not be read
	command   string
	digest    string
	seq       int64
	state     commands.State
	reason    commands.Reason
	attempt   int
	refusal   *commands.RefusedBody
	result    *commands.Result
	delivered *commands.Result // the newest that was, for review
	final     []byte           // digest of what the refusal or result says of the end; nil = neither
	accepted  bool
	saidAt    said
	ends      []*commands.Ended // of attempts
	next      int64             // when the attempt after attempt follows, as said since its end, in ms since 1970; 0 = nothing was
	policy    string            // of the newest report that names one
	confined  string            // isolation of the newest report that names one
	stands    commands.State    // as the newest report says that is a word on a pause; "" = none is
	standsAt  int64             // number of that report
}

// said is when the sender says that something happened, in ms since 1970; 0 = it
// does not say.
type said struct{ accepted, started, ended int64 }

// earliest returns the earlier of two times that were said.
func earliest(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

type folds struct {
	order  []*fold
	byTask map[string]*fold
}

func (f *folds) add(m *Incoming) {
	task, re := m.Task(), m.Header.Re
	key := m.Conn + task + re.ID
	x := f.byTask[key]
	if x == nil {
		x = &fold{message: m, conn: m.Conn, task: task, command: re.ID, digest: re.SHA256}
		f.byTask[key] = x
		f.order = append(f.order, x)
	}
	x.all = append(x.all, m)
	if m.isFinal() {
		says := m.endSaid()
		if x.final != nil && !bytes.Equal(x.final, says) {
			m.reject(commands.ResultClash, anotherResult)
			return
		}
		x.message, x.final = m, says
	}
	if m.Unread && x.result != nil {
		return
	}
	newest := m.Header.Seq > x.seq
	x.seq = max(x.seq, m.Header.Seq)
	switch m.Body.(type) {
	case *commands.Accepted, *commands.Started, *commands.Ended, *commands.Question, *commands.Answered, *commands.TaskState, *commands.Result:
		x.accepted, x.saidAt.accepted = true, earliest(x.saidAt.accepted, m.Header.Iat)
	}
	x.stand(m)
	switch b := m.Body.(type) {
	case *commands.Accepted:
		x.decided(newest, b.Policy)
		if !b.State.Terminal() { // else the result says more
			x.set(newest, b.State, "", 0)
		}
	case *commands.Started:
		x.decided(newest, b.Policy)
		x.isolated(newest, b.Isolation)
		x.saidAt.started = earliest(x.saidAt.started, b.At)
		x.set(newest, commands.Running, "", b.Attempt)
	case *commands.Ended:
		if !slices.ContainsFunc(x.ends, func(e *commands.Ended) bool { return e.Attempt == b.Attempt }) { // a restored spoke tells it again
			x.ends = append(x.ends, b)
		}
		x.set(newest, b.State, b.Reason, b.Attempt)
		if newest {
			x.next = 0
		}
	case *commands.Question:
		x.set(newest, commands.AwaitingInput, "", b.Attempt)
	case *commands.Answered:
		x.set(newest, b.State, "", 0)
	case *commands.TaskState: // of an agent that was paused, goes on, or was cancelled and may finish
		if !b.State.Terminal() { // else the result says more
			x.set(newest, b.State, b.Reason, b.Attempt)
		}
		if newest {
			x.next = b.Next
		}
	case *commands.RefusedBody:
		x.decided(newest, b.Policy)
		state, reason := refusedState(b.Code)
		x.refusal = b
		x.set(newest, state, reason, 0)
		x.saidAt.ended = m.Header.Iat
	case *commands.Result:
		if b.Delivered() {
			x.decided(newest, b.Policy)
			x.isolated(newest, b.Isolation)
			x.deliver(newest, b)
			return
		}
		x.decided(newest, b.Policy)
		x.isolated(newest, b.Isolation)
		x.result = b
		x.state, x.reason, x.attempt = b.State, b.Reason, b.Attempt
		x.saidAt.started, x.saidAt.ended = earliest(x.saidAt.started, b.StartedAt), b.EndedAt
	}
}

// deliver takes what an attempt has delivered for review.
func (x *fold) deliver(newest bool, b *commands.Result) {
	if x.delivered == nil || b.Attempt >= x.delivered.Attempt {
		x.delivered = b
	}
	x.saidAt.started = earliest(x.saidAt.started, b.StartedAt)
	x.set(newest, b.State, b.Reason, b.Attempt)
}

// stand takes what m says of whether the agent stands still. What it has asked, and what became of that, says nothing of a pause: of an
// agent that stands still a spoke tells that behind it, maybe in another batch.
func (x *fold) stand(m *Incoming) {
	var s commands.State
	switch b := m.Body.(type) {
	case *commands.Started:
		s = commands.Running
	case *commands.Ended:
		s = b.State
	case *commands.TaskState:
		s = b.State
	}
	if s != "" && m.Header.Seq > x.standsAt {
		x.stands, x.standsAt = s, m.Header.Seq
	}
}

// isFinal reports whether m says how a task ended at its spoke. Of each task one
// message does.
func (m *Incoming) isFinal() bool {
	if r, ok := m.Body.(*commands.Result); ok && r.Delivered() {
		return false
	}
	kind := m.Body.Kind()
	return (kind == commands.ResultKind || kind == commands.RefusedKind) && !m.Unread
}

// endSaid is a digest of what m says of an end. A result that a spoke has from its hub, after
// it was restored, has less to say of the same end.
func (m *Incoming) endSaid() []byte {
	said := m.Header.Body.SHA256
	if r, ok := m.Body.(*commands.Result); ok {
		said = r.End()
	}
	sum := sha256.Sum256([]byte(said))
	return sum[:]
}

// set takes a state unless the fold has a newer one, or the result.
func (x *fold) set(newest bool, s commands.State, r commands.Reason, attempt int) {
	if x.result == nil && (newest || x.state == "") {
		if x.reason == commands.CancelRequested && !s.Terminal() { // whatever else it does, it has been cancelled
			r = x.reason
		}
		x.state, x.reason = s, r
	}
	x.attempt = max(x.attempt, attempt)
}

// decided takes the version of a policy unless the fold has a newer one.
func (x *fold) decided(newest bool, policy string) {
	if policy != "" && (newest || x.policy == "") {
		x.policy = policy
	}
}

// isolated takes a level of isolation unless the fold has a newer one.
func (x *fold) isolated(newest bool, level string) {
	if level != "" && (newest || x.confined == "") {
		x.confined = level
	}
}

// refusedState says where a refused spawn ends.
func refusedState(code commands.Code) (commands.State, commands.Reason) {
	switch code {
	case signing.TimeExpired, signing.TimeTTL, signing.TimeFuture: // a spoke of this version does not answer the last
		return commands.Expired, commands.CommandExpired
	case commands.Tombstone:
		return commands.Cancelled, commands.KillRequested
	case commands.Grant, signing.ConnState:
		return commands.Unavailable, commands.GrantDenied
	case commands.Capability:
		return commands.Unavailable, commands.CapabilityMissing
	case commands.TaskConflict:
		return commands.Unavailable, commands.IDUsed
	}
	return commands.Unavailable, commands.PolicyDenied
}

// maxAnswers bounds the messages about one command that are acted on, but for its first end. Of an honest spoke there are some
// 1,700 at most: two of each of 301 attempts (the first, and 100 each after failures, losses and limits of its account), two of each of 100
// pauses, 100 of words about pauses that change nothing, 400 that its agent asks, as many of what became of these, four of each of 20 reviews, that it was accepted, and its end. Besides, each time that the clock of its host is set back while it waits for its next attempt.
const maxAnswers = 2000

func foldAll(batch []*Incoming) *folds {
	f := &folds{byTask: map[string]*fold{}}
	for _, m := range batch {
		f.add(m)
	}
	return f
}

// moveMirrors takes folds by column. It returns which of them belong to a mirror, of
// which task, whether that has another end already, which of them answer one command
// too often (the first end of an order never does: nothing else tells it), and whether the task had ended before. Comparisons of conn are written so that
// no index of connections fits: of a table that was empty when the plan was made, it would be
// read whole.
const moveMirrors = `
	WITH u AS (
		SELECT *, (SELECT count(*) FROM (SELECT FROM inbox i WHERE i.re = u.command AND (i.conn = u.conn) IS TRUE LIMIT $20 + 1) AS answers) > $20
			AND NOT (u.final IS NOT NULL AND EXISTS (SELECT FROM mirrors m WHERE m.command = u.command AND (m.conn = u.conn) IS TRUE AND m.final_digest IS NULL)) AS excess
		FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::int[], $9::bool[], $10::jsonb[], $11::jsonb[], $12::bytea[], $14::text[], $15::text[], $17::bigint[], $18::bigint[], $19::jsonb[], $21::text[], $22::bigint[], $23::text[], $24::jsonb[])
			WITH ORDINALITY AS u (conn, command, digest, state, reason, seq, started, attempt, accepted, refusal, result, final, about, policy, accepted_ms, ended_ms, ends, isolation, next, stands, delivered, n)
	), old AS (
		SELECT m.task, m.final_digest AS had, is_terminal(m.state) AS over,
			u.state <> '' AND NOT is_terminal(m.state) AND (u.seq > m.last_seq OR u.result->>'state' <> 'in_review') AS forward,
			u.state IS DISTINCT FROM m.state::text AS news,
			u.n, u.state, u.reason, u.seq, u.attempt, u.accepted, u.refusal, u.result, u.final, u.policy, u.isolation, u.next, u.stands, u.delivered,
			CASE WHEN u.ends IS NULL OR jsonb_array_length(m.attempts) >= 100 THEN m.attempts ELSE m.attempts || coalesce((
				SELECT jsonb_agg(e ORDER BY n) FROM jsonb_array_elements(u.ends) WITH ORDINALITY AS x (e, n) WHERE NOT m.attempts @> jsonb_build_array(jsonb_build_object('attempt', e->'attempt'))), '[]') END AS attempts,
			from_ms(u.accepted_ms) AS accepted_said, from_ms(u.started) AS started_said, from_ms(u.ended_ms) AS ended_said
		FROM u JOIN mirrors m ON m.command = u.command AND (m.conn = u.conn) IS TRUE AND encode(m.command_digest, 'hex') = u.digest
			AND u.about IN ('', m.task::text)
		WHERE NOT u.excess
		ORDER BY m.task FOR UPDATE OF m
	), moved AS (
		UPDATE mirrors m SET
			state = CASE WHEN o.forward THEN o.state::task_state ELSE m.state END,
			reason = CASE WHEN o.forward AND o.refusal IS NOT NULL AND o.reason = 'kill_requested' THEN reason_of(m.kill) 
				WHEN o.forward AND m.reason = 'cancel_requested' AND NOT is_terminal(o.state::task_state) THEN m.reason WHEN o.forward THEN o.reason ELSE m.reason END,
			ended_at = CASE WHEN o.forward AND is_terminal(o.state::task_state) THEN clock_timestamp() ELSE m.ended_at END,
			ended_said = CASE WHEN o.forward AND is_terminal(o.state::task_state) THEN o.ended_said ELSE m.ended_said END,
			result = CASE WHEN CASE WHEN o.result->>'state' = 'in_review' THEN NOT o.over AND coalesce((m.result->>'attempt')::int, 0) < (o.result->>'attempt')::int + o.forward::int ELSE o.result IS NOT NULL AND o.forward END THEN o.result || jsonb_build_object('task', m.task) ELSE m.result END,
			delivered = CASE WHEN NOT o.over AND coalesce((m.delivered->>'attempt')::int, 0) < (o.delivered->>'attempt')::int + (o.seq > m.last_seq)::int THEN o.delivered ELSE m.delivered END,
			final_digest = CASE WHEN o.forward OR o.over THEN coalesce(m.final_digest, o.final) ELSE m.final_digest END,
			refusal = CASE WHEN o.forward AND o.refusal IS NOT NULL THEN o.refusal ELSE m.refusal END,
			refusals = CASE WHEN o.forward AND o.refusal IS NOT NULL
				THEN m.refusals || (o.refusal - 'task' || jsonb_build_object('conn', m.conn, 'spoke', $16::text, 'at', clock_timestamp())) ELSE m.refusals END,
			attempts = CASE WHEN o.forward AND o.next > 0 THEN coalesce((
				SELECT jsonb_agg(CASE (e->>'attempt')::bigint WHEN o.attempt THEN e || jsonb_build_object('next', o.next) ELSE e END ORDER BY n) FROM jsonb_array_elements(o.attempts) WITH ORDINALITY AS x (e, n)), '[]') ELSE o.attempts END,
			policy = CASE WHEN o.policy <> '' AND (o.seq > m.last_seq OR m.policy = '') THEN o.policy ELSE m.policy END,
			isolation = CASE WHEN o.isolation <> '' AND (o.seq > m.last_seq OR m.isolation = '') THEN o.isolation ELSE m.isolation END,
			pause = CASE WHEN o.forward AND m.state = 'paused' AND o.stands NOT IN ('', 'paused') AND NOT is_terminal(o.state::task_state) AND m.pause->>'state' = 'taken' AND (m.pause->>'paused')::boolean
				THEN m.pause || '{"state": "over"}' ELSE m.pause END,
			attempt = greatest(m.attempt, o.attempt), last_seq = greatest(m.last_seq, o.seq),
			accepted_at = coalesce(m.accepted_at, CASE WHEN o.accepted THEN clock_timestamp() END),
			accepted_said = coalesce(m.accepted_said, o.accepted_said),
			started_at = coalesce(m.started_at, CASE WHEN o.started_said IS NOT NULL THEN clock_timestamp() END),
			started_said = coalesce(m.started_said, o.started_said),
			updated_at = clock_timestamp()
		FROM old o WHERE m.task = o.task
	), audited AS (
		INSERT INTO audit (actor, action, object, code, why, conn)
		SELECT ($13::text[])[n::int], CASE WHEN over THEN 'mirror.late' ELSE 'mirror.' || state END, task::text, reason, coalesce(refusal ->> 'why', ''), ($1::uuid[])[n::int] FROM old
		WHERE forward AND news OR over AND had IS NULL AND final IS NOT NULL
	)
	SELECT n, task::text, coalesce(over AND had <> final, false), false, over FROM old UNION ALL SELECT n, '', false, true, false FROM u WHERE excess`

// move lets each fold change its mirror, and refuses the reports of those that have none.
func (f *folds) move(ctx context.Context, tx *Tx, from Standing) error {
	if len(f.order) == 0 {
		return nil
	}
	c := f.columns()
	rows, err := tx.Query(ctx, moveMirrors,
		c.conn, c.command, c.digest, c.state, c.reason, c.seq, c.startedAt, c.attempt, c.accepted, c.refusal, c.result, c.final, c.actor, c.task, c.policy, from.Name, c.acceptedAt, c.endedAt, c.ends, maxAnswers, c.isolation, c.next, c.stands, c.delivered)
	if err != nil {
		return fmt.Errorf("moving mirrors: %w", err)
	}
	matched := map[int]bool{}
	var clashes []*fold
	var n int
	var task string
	var clash, excess, over bool
	if _, err = pgx.ForEachRow(rows, []any{&n, &task, &clash, &excess, &over}, func() error {
		matched[n-1] = true
		f.order[n-1].late(over)
		f.order[n-1].name(task)
		switch x := f.order[n-1]; {
		case excess:
			x.reject(commands.TooMany, fmt.Sprintf("more than %d answers to one command", maxAnswers))
		case clash:
			x.message.reject(commands.ResultClash, anotherResult)
			clashes = append(clashes, x)
		}
		return nil
	}); err != nil {
		return fmt.Errorf("moving mirrors: %w", err)
	}
	if err := forgiveForgotten(ctx, tx, from.ID, clashes); err != nil {
		return err
	}
	return checkUnmatched(ctx, tx, f, matched)
}

// checkUnmatched refuses answers to questions that were never asked, or that
// were asked about another task. Answers to kill and status move no mirror that has not lost its result, but
// their question was sent. An order that was given has lost its agent here: what is told of it
// has no effect either, and its sender has done nothing wrong.
func checkUnmatched(ctx context.Context, tx *Tx, f *folds, matched map[int]bool) error {
	var which []*fold
	var ids, conns, digests, tasks []string
	for n, x := range f.order {
		if !matched[n] {
			which = append(which, x)
			ids, conns, digests, tasks = append(ids, x.command), append(conns, x.conn), append(digests, x.digest), append(tasks, x.task)
		}
	}
	if len(which) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, `SELECT coalesce((SELECT kind FROM outbox WHERE id = u.id AND conn = u.conn AND encode(body, 'hex') = u.digest AND u.task IN ('', task::text)), '')
		FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[]) WITH ORDINALITY AS u (id, conn, digest, task, n) ORDER BY n`, ids, conns, digests, tasks)
	if err != nil {
		return fmt.Errorf("looking up commands: %w", err)
	}
	asked, err := pgx.CollectRows(rows, pgx.RowTo[commands.Kind])
	if err != nil {
		return fmt.Errorf("looking up commands: %w", err)
	}
	var answers, all []*Incoming
	for n, x := range which {
		switch asked[n] {
		case "":
			x.reject(commands.ReUnknown, "an answer to a command that this hub did not give over this connection")
		case commands.SpawnKind:
			x.reject(commands.UnknownTask, "this hub has this agent no more, or another spoke has it")
		default:
			x.answers(asked[n])
			answers = append(answers, x.all...)
		}
	}
	for _, x := range f.order {
		all = append(all, x.all...)
	}
	return endTold(ctx, tx, answers, all)
}

const anotherResult = "the task has another end already; this message is kept as evidence"

// late records whether the task had ended before the reports of the fold.
func (x *fold) late(over bool) {
	for _, m := range x.all {
		m.Late = over
	}
}

// name says of results that could not be read which task they are about.
func (x *fold) name(task string) {
	for _, m := range x.all {
		if m.Unread {
			m.Body.(*commands.Result).Task = task
		}
	}
}

// answers records that the reports of the fold answer no order but another question, and
// which: they have told that and nothing else, whatever they say.
func (x *fold) answers(question commands.Kind) {
	for _, m := range x.all {
		m.Effect = question
	}
}

// reject records that no report of the fold has an effect.
func (x *fold) reject(code signing.Code, why string) {
	for _, m := range x.all {
		m.reject(code, why)
	}
}

// reject records that a report has no effect.
func (m *Incoming) reject(code signing.Code, why string) {
	m.Code, m.Why, m.forgotten = code, why, false
}

// foldColumns are folds turned on their side, for one statement.
type foldColumns struct {
	conn, task, command, digest []string
	state, reason, actor        []string
	policy, isolation           []string
	seq                         []int64
	startedAt                   []int64 // as said; 0 = not said
	acceptedAt, endedAt         []int64
	attempt                     []int
	accepted                    []bool
	refusal                     []*commands.RefusedBody
	result                      []*commands.Result // the end, or else what was delivered
	delivered                   []*commands.Result
	final                       [][]byte
	ends                        []*endsOf // nil: none
	next                        []int64
	stands                      []string
}

// endsOf travels as one JSON value.
type endsOf struct{ list []*commands.Ended }

// MarshalJSON writes the list.
func (e endsOf) MarshalJSON() ([]byte, error) { return json.Marshal(e.list) }

func (f *folds) columns() foldColumns {
	var c foldColumns
	for _, x := range f.order {
		c.conn, c.task, c.actor = append(c.conn, x.conn), append(c.task, x.task), append(c.actor, string(x.message.Header.Iss))
		c.command, c.digest = append(c.command, x.command), append(c.digest, x.digest)
		c.policy, c.isolation = append(c.policy, x.policy), append(c.isolation, x.confined)
		c.state, c.reason, c.seq = append(c.state, string(x.state)), append(c.reason, string(x.reason)), append(c.seq, x.seq)
		c.attempt, c.accepted = append(c.attempt, x.attempt), append(c.accepted, x.accepted)
		c.acceptedAt, c.startedAt, c.endedAt = append(c.acceptedAt, x.saidAt.accepted), append(c.startedAt, x.saidAt.started), append(c.endedAt, x.saidAt.ended)
		var ends *endsOf
		if len(x.ends) > 0 {
			ends = &endsOf{x.ends}
		}
		c.ends, c.next = append(c.ends, ends), append(c.next, x.next)
		c.stands = append(c.stands, string(x.stands))
		c.refusal, c.result, c.final = append(c.refusal, x.refusal), append(c.result, cmp.Or(x.result, x.delivered)), append(c.final, x.final)
		c.delivered = append(c.delivered, x.delivered)
	}
	return c
}
