package store

import (
	"context"
	"fmt"

	"github.com/spawnmesh/spawnmesh/commands"
)

// endToldSQL says of no mirror that it has no end, and looks for answers by the order alone, for what [newsSQL] says.
const endToldSQL = `
	WITH u AS (
		SELECT DISTINCT ON (task) * FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::jsonb[]) AS u (conn, task, seq, result) ORDER BY task, seq DESC
	), lost AS (
		SELECT m.task, u.seq, u.result FROM u JOIN mirrors m ON m.task = u.task AND (m.conn = u.conn) IS TRUE JOIN sequences s ON s.conn = u.conn
		WHERE NOT is_terminal(m.state) AND m.accepted_at IS NOT NULL
			AND (EXISTS (SELECT FROM (SELECT kind, code FROM inbox WHERE re = m.command AND (conn = m.conn) IS TRUE OFFSET 0) AS i WHERE i.kind = $6 AND i.code <> '')
				OR s.stored + $5::int8multirange @> int8range(least(s.peer_base + 1, u.seq), u.seq))
		ORDER BY m.task FOR UPDATE OF m
	), ended AS (
		UPDATE mirrors m SET state = (l.result ->> 'state')::task_state, reason = l.result ->> 'reason', result = l.result,
			attempt = greatest(m.attempt, (l.result ->> 'attempt')::int), last_seq = greatest(m.last_seq, l.seq), ended_at = clock_timestamp(),
			ended_said = from_ms((l.result ->> 'ended_at')::bigint), updated_at = clock_timestamp()
		FROM lost l WHERE m.task = l.task AND NOT is_terminal(m.state) RETURNING m.task, m.state, m.reason, m.conn
	)
	INSERT INTO audit (actor, action, object, code, why, conn)
	SELECT 'self', 'mirror.' || state, task::text, reason, 'its spoke says that it has ended, and its result did not come', conn FROM ended`

// endTold ends mirrors whose spoke says, in answer to another question, that their tasks have ended, and whose result can
// not come any more: it was refused here, or all that the spoke had numbered before has come without it.
func endTold(ctx context.Context, tx *Tx, answers, batch []*Incoming) error {
	var conns, tasks []string
	var seqs, all []int64
	var results []*commands.Result
	for _, m := range answers {
		if r := endIn(m); r != nil {
			conns, tasks, seqs, results = append(conns, m.Conn), append(tasks, r.Task), append(seqs, m.Header.Seq), append(results, r)
		}
	}
	if len(tasks) == 0 {
		return nil
	}
	for _, m := range batch {
		all = append(all, m.Header.Seq)
	}
	_, err := tx.Exec(ctx, endToldSQL, conns, tasks, seqs, results, multirange(all), string(commands.ResultKind))
	if err != nil {
		return fmt.Errorf("ending agents whose spoke says that they have ended: %w", err)
	}
	return nil
}

// endIn is the end that a report tells which is no result; nil = it tells none.
func endIn(m *Incoming) *commands.Result {
	const lost = "its spoke says so; its result did not come here, or could not be read"
	switch b := m.Body.(type) {
	case *commands.TaskState:
		if b.State.Terminal() {
			return commands.UnknownEnd(b.Task, b.State, b.Attempt, b.At, lost)
		}
	case *commands.Killed:
		if b.State.Terminal() {
			return commands.UnknownEnd(b.Task, b.State, 0, b.At, lost)
		}
	}
	return nil
}
