package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

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
