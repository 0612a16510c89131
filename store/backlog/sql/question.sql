-- Questions of agents. Who asks or answers holds the lease of the task, and where there is none the task.

-- The attempt that asks, held: whether its start is recorded, whether it waits already, whether it stands still, and what asked for its task.
-- name: hold_asker
SELECT l.workspace, l.started_at IS NOT NULL, l.asking, l.paused_at IS NOT NULL, coalesce(t.conn::text, ''), coalesce(t.command::text, ''), t.command_digest FROM leases l JOIN tasks t ON t.id = l.task
-- include: by_fence
FOR UPDATE OF l

-- name: question_columns
SELECT q.id::text, q.task::text, q.attempt, q.question, q.options, q.fallback, q.data, q.asked_at, q.deadline,
    coalesce(q.outcome, 'open'), q.answer, q.reason, q.answered_by, q.answered_at, t.title, coalesce(c.peer_name, ''), q.key, q.turn
FROM questions q JOIN standing t ON t.id = q.task LEFT JOIN connections c ON c.id = t.conn

-- name: question_by_key
-- include: question_columns
WHERE q.task = $1 AND q.key = $2

-- name: question_by_id
-- include: question_columns
WHERE q.id = $1

-- name: questions_of
-- include: question_columns
WHERE q.task = $1 ORDER BY q.asked_at, q.id LIMIT 100

-- name: questions_named
-- include: question_columns
WHERE q.id = ANY (ARRAY (SELECT id FROM questions WHERE substring(uuid_send(id) FROM 12) BETWEEN decode($1, 'hex') AND decode($2, 'hex') ORDER BY substring(uuid_send(id) FROM 12) LIMIT 200)) ORDER BY q.id LIMIT 20

-- name: open_questions
WITH page AS MATERIALIZED (
    SELECT id FROM questions WHERE outcome IS NULL AND (turn, asked_at, id) < ($1, $2, $3) ORDER BY turn DESC, asked_at DESC, id DESC LIMIT $4
)
-- include: question_columns
WHERE q.id = ANY (ARRAY (SELECT id FROM page)) ORDER BY q.turn DESC, q.asked_at DESC, q.id DESC

-- name: next_turn
    turn_of((SELECT count(*) FROM (SELECT FROM questions WHERE outcome IS NULL LIMIT 2000) AS open))

-- name: ask_question
INSERT INTO questions (id, workspace, task, attempt, key, question, options, fallback, data, deadline, turn)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, clock_timestamp() + $10::interval,
-- include: next_turn
    ) RETURNING asked_at, deadline

-- A question that was withdrawn, and that a later attempt asks again.
-- name: reopen_question
UPDATE questions SET outcome = NULL, answer = '', reason = '', answered_by = '', answered_at = NULL, asked_at = clock_timestamp(), deadline = clock_timestamp() + $2::interval,
    turn =
-- include: next_turn
    WHERE id = $1 RETURNING asked_at, deadline

-- The attempt that asks waits: for a question of an earlier one, too. $4 is how many reports tell that.
-- name: begin_waiting
WITH asks AS (
    UPDATE questions SET attempt = $3, told = told + $4 WHERE id = $2
)
UPDATE leases SET asking = true, heard_at = clock_timestamp() WHERE task = $1

-- Those that a task waits for an answer to. Where they are asked for by a task, it is answered_at that is null: where few
-- are open, the planner takes the whole of an index WHERE outcome IS NULL for less than those of a task, and keeps that plan when they are many.
-- name: unanswered
SELECT id::text FROM questions WHERE task = $1 AND answered_at IS NULL

-- The first answer wins.
-- name: answer_question
UPDATE questions SET outcome = $2, answer = $3, answered_by = $4, reason = $5, answered_at = clock_timestamp() WHERE id = $1 AND answered_at IS NULL RETURNING answered_at

-- Lets a task go on whose last attempt has no open question any more: its agent runs on, or the next attempt gets the answers. What
-- only earlier attempts have asked nobody waits for. An answer ends no wait for a time, which is counted from the last change of the task: a clock that was ahead
-- then makes it no longer. It says what asked for the task.
-- name: after_answer
WITH still AS (
    SELECT EXISTS (SELECT FROM questions q WHERE q.task = $1 AND q.attempt = t.attempt AND q.answered_at IS NULL) AS asking FROM standing t WHERE t.id = $1
), lease AS (
    UPDATE leases SET asking = false FROM still WHERE task = $1 AND NOT still.asking
), moved AS (
    UPDATE tasks SET state = 'queued', reason = CASE WHEN not_before > now() THEN reason ELSE '' END, next_type = 'resume', not_before = least(not_before, now() + (not_before - updated_at)), epoch = epoch + 1, updated_at = clock_timestamp() FROM still
    WHERE id = $1 AND state = 'awaiting_input' AND NOT still.asking RETURNING id
)
SELECT t.workspace, t.attempt, t.epoch, coalesce(t.conn::text, ''), coalesce(t.command::text, ''), t.command_digest,
    CASE WHEN still.asking THEN t.state::text WHEN EXISTS (SELECT FROM moved) THEN 'queued' WHEN t.state = 'awaiting_input' THEN 'running' ELSE t.state::text END
FROM still, standing t WHERE t.id = $1

-- Those that nobody has answered in time.
-- name: lapsed_questions
SELECT id::text, fallback FROM questions WHERE outcome IS NULL AND deadline <= statement_timestamp() ORDER BY deadline LIMIT $1

-- name: withdraw_asked
UPDATE questions SET outcome = 'withdrawn', reason = $2, answered_at = clock_timestamp() WHERE task = ANY ($1::uuid[]) AND answered_at IS NULL RETURNING id::text, task::text, answered_at
