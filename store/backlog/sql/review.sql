-- Reviews of what agents have delivered. Who says one holds the task as it stands.

-- A task as its reviewer finds it.
-- name: reviewing
SELECT s.state, s.attempt, s.epoch, coalesce(s.conn::text, ''), coalesce(s.command::text, ''), s.command_digest, s.started_at, (SELECT reworks FROM tasks WHERE id = s.id), b.review, b.result
FROM standing s JOIN task_bodies b ON b.task = s.id WHERE s.id = $1

-- What sends it back counts, whether it goes on from now or goes on already.
-- name: note_review
WITH counted AS (UPDATE tasks SET reworks = reworks + 1 WHERE id = $1 AND $3)
UPDATE task_bodies b SET review = $2::jsonb || jsonb_build_object('at', now.at) FROM (SELECT clock_timestamp() AS at) AS now WHERE b.task = $1 RETURNING now.at

-- name: last_review
SELECT review FROM task_bodies WHERE task = $1 AND review IS NOT NULL

-- What goes on does so at once, and spends no retry.
-- name: move_reviewed
UPDATE tasks SET state = $2::text::task_state, reason = $3, epoch = epoch + 1, updated_at = clock_timestamp(), not_before = NULL,
    next_type = CASE $2::text WHEN 'queued' THEN 'rework' ELSE next_type END
WHERE id = $1 AND state IN ('in_review', 'approved')

-- name: complete_reviewed
WITH moved AS (
    UPDATE tasks SET state = 'completed', reason = '', epoch = epoch + 1, updated_at = clock_timestamp(), ended_at = clock_timestamp()
    WHERE id = $1 AND state = ANY ($2::text[]::task_state[]) RETURNING id, workspace, lane, phase, state, conn, ended_at
),
-- include: tally
SELECT id::text FROM moved

-- What the last attempts of tasks have delivered that end without another one.
-- name: delivered
SELECT t.id::text, b.result FROM tasks t JOIN task_bodies b ON b.task = t.id WHERE t.id = ANY ($1::uuid[]) AND t.reworks IS NOT NULL AND b.result->>'state' = 'in_review' AND (b.result->>'attempt')::int = t.attempt
