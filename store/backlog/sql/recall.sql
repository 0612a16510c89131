-- What the one who asked for tasks recalls of them, after this database was
-- restored from a backup.

-- name: read_recalled
SELECT id::text, state, attempt, epoch, owner IS NOT NULL FROM standing WHERE id = ANY ($1::uuid[]) AND conn = $2

-- Returns those that have ended with a result.
-- name: answers_of
WITH bound AS (
    UPDATE tasks t SET command = u.command::uuid, command_digest = decode(u.digest, 'hex')
    FROM unnest($1::uuid[], $2::text[], $3::text[]) AS u (task, command, digest) WHERE t.id = u.task AND t.conn = $4 AND t.command <> nullif(u.command, '')::uuid
    RETURNING t.id, t.state, t.epoch, u.command, u.digest
)
SELECT id::text, state, epoch, command, digest, result FROM bound JOIN task_bodies ON task = id WHERE result IS NOT NULL AND is_terminal(state)

-- Remembers attempts that had started: a claim takes them over and starts nothing. Those of $5 were cancelled, and may finish: what was told once of an attempt stays.
-- name: note_recalled
INSERT INTO recalled AS r (task, conn, attempt, over, reason) SELECT task, $3, attempt, over, CASE WHEN task = ANY ($5::uuid[]) THEN 'cancel_requested' ELSE '' END FROM unnest($1::uuid[], $2::int[], $4::boolean[]) AS u (task, attempt, over)
ON CONFLICT (task, conn) DO UPDATE SET at = excluded.at, (attempt, over, reason) =
    (SELECT x.attempt, x.over, x.reason FROM (VALUES (r.attempt, r.over, r.reason), (excluded.attempt, excluded.over, excluded.reason)) AS x (attempt, over, reason) ORDER BY x.attempt DESC, x.over DESC, x.reason DESC LIMIT 1)

-- Which of tasks $1 that are not here connection $2 has named since $3.
-- name: named_before
SELECT task::text FROM recalled WHERE task = ANY ($1::uuid[]) AND conn = $2 AND at >= $3

-- Brings tasks that wait forward to the attempts that were told of. Those spent
-- retries as far as is known, and what ran does not expire unstarted.
-- name: bring_forward
WITH u AS (
    SELECT * FROM unnest($1::uuid[], $2::int[]) AS u (task, attempt)
), moved AS (
    UPDATE tasks t SET attempt = greatest(t.attempt, u.attempt), retries = t.retries + greatest(u.attempt - t.attempt, 0), updated_at = clock_timestamp()
    FROM u WHERE t.id = u.task RETURNING t.id, t.workspace, t.class, t.priority, t.seq, t.attempt
), later AS (
    DELETE FROM due d USING moved m WHERE d.task = m.id RETURNING d.task, d.workspace, d.lane, d.phase
), soon AS (
    INSERT INTO due (task, workspace, lane, phase, at) SELECT task, workspace, lane, phase, now() FROM later
), aside AS (
    UPDATE parked p SET expires_at = 'infinity' FROM moved m WHERE p.task = m.id AND p.expires_at < 'infinity'
)
UPDATE ready r SET expires_at = 'infinity', attempt = m.attempt + 1 FROM moved m WHERE r.workspace = m.workspace AND r.class = m.class AND r.rank = -m.priority AND r.seq = m.seq

-- name: end_recalled
WITH moved AS (
    UPDATE tasks t SET state = u.state::task_state, reason = u.reason, attempt = greatest(t.attempt, u.attempt), epoch = epoch + 1, updated_at = clock_timestamp(),
        ended_at = least(greatest(from_ms(u.ended), t.created_at), clock_timestamp())
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::int[], $6::bigint[]) AS u (task, state, reason, attempt, ended) WHERE t.id = u.task AND NOT is_terminal(t.state)
    RETURNING t.id, t.workspace, t.lane, t.phase, t.state, t.reason, t.conn, t.ended_at
), audited AS (
    INSERT INTO audit (workspace, actor, action, object, code, why) SELECT workspace, $5, 'task.' || state, id::text, reason, 'as the peer recalls; this database was restored from a backup' FROM moved
),
-- include: tally
SELECT id::text FROM moved

-- name: pasts
SELECT t.id::text, coalesce(r.attempt, 0), coalesce(s.recall_from > 0 AND NOT has_ended(c.state)
    AND NOT EXISTS (SELECT FROM leases l WHERE l.task = t.id AND (is_kill(l.reason) OR EXISTS (SELECT FROM kills k WHERE k.task = l.task AND k.conn = l.conn AND k.cancel <> 'after'))), false)
FROM tasks t LEFT JOIN recalled r ON r.task = t.id AND r.conn = t.conn LEFT JOIN sequences s ON s.conn = t.conn LEFT JOIN connections c ON c.id = t.conn
WHERE t.id = ANY ($1::uuid[])

-- What agents have asked before the restore, $2, that went on since as far as their asker knows.
-- name: withdraw_recalled
UPDATE questions q SET outcome = 'withdrawn', reason = $3, answered_at = clock_timestamp() FROM unnest($1::uuid[]) AS u (task) WHERE q.task = u.task AND q.answered_at IS NULL AND q.asked_at < $2 RETURNING q.task::text

-- Attempts that had begun were not given back, as they were closed.
-- name: interrupt_recalled
UPDATE ended_attempts e SET outcome = 'interrupted', exit = $3 FROM unnest($1::uuid[], $2::int[]) AS u (task, attempt)
WHERE e.task = u.task AND e.number = u.attempt AND e.outcome = 'released' AND e.started_at IS NOT NULL
