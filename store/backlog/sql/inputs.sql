-- What tasks need to begin that travels beside their orders.

-- name: note_inputs
INSERT INTO blob_uses (task, conn, digest, size) SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[]) ON CONFLICT DO NOTHING

-- name: held_inputs
SELECT conn::text, sum(size)::bigint FROM (SELECT DISTINCT conn, digest, size FROM blob_uses WHERE conn = ANY ($1::uuid[]) AND NOT result) AS u GROUP BY 1

-- Which of some inputs are of a task of the connection already.
-- name: known_inputs
SELECT DISTINCT conn::text, digest, size FROM blob_uses WHERE digest = ANY ($2::text[]) AND conn = ANY ($1::uuid[]) AND NOT result

-- Whoever is about to forget them looks at them again, and at who needs them.
-- name: keep_inputs
WITH held AS MATERIALIZED (
    SELECT b.digest, b.owner FROM (SELECT DISTINCT digest, conn FROM unnest($1::text[], $2::text[]) AS u (digest, conn)) AS u JOIN blobs b ON b.digest = u.digest AND b.owner = u.conn ORDER BY b.digest, b.owner FOR UPDATE OF b
)
UPDATE blobs b SET at = clock_timestamp() FROM held h WHERE b.digest = h.digest AND b.owner = h.owner

-- name: await_inputs
UPDATE tasks SET unmet = unmet + 1, reason = 'waiting_input' WHERE id = ANY ($1::uuid[]) AND awaits_input(id) RETURNING id::text

-- Of each connection the oldest tasks first. They are found by the index of those that wait for inputs.
-- name: wanted_inputs
SELECT c.id::text, u.digest, u.size FROM unnest($1::uuid[]) AS c (id),
    LATERAL (SELECT p.task FROM parked p, LATERAL (SELECT conn FROM tasks WHERE id = p.task OFFSET 0) AS t WHERE p.input AND t.conn = c.id ORDER BY p.task LIMIT $2) AS p,
    LATERAL (SELECT digest, size FROM blob_uses WHERE task = p.task AND NOT result OFFSET 0) AS u
WHERE NOT EXISTS (SELECT FROM blobs b WHERE b.digest = u.digest AND b.owner = c.id::text AND b.size = u.size)
GROUP BY 1, 2, 3 ORDER BY min(p.task::text)

-- Those that wait for inputs, and need this one; also those that are paused, or have ended.
-- name: tasks_of_input
SELECT t.id::text FROM (SELECT task FROM blob_uses WHERE digest = $2 AND NOT result AND size = $3 OFFSET 0) AS u, LATERAL (SELECT id, conn FROM tasks WHERE id = u.task OFFSET 0) AS t
WHERE t.conn = $1 AND awaits_input(t.id) ORDER BY t.id

-- The blob is held from here on. Of the tasks those go on that waited for it alone.
-- name: input_came
WITH here AS (
    INSERT INTO blobs (digest, owner, size) VALUES ($3, $2, $4) ON CONFLICT (digest, owner) DO UPDATE SET size = excluded.size, at = clock_timestamp()
)
UPDATE tasks t SET unmet = unmet - 1, reason = CASE WHEN reason = 'waiting_input' THEN '' ELSE reason END, updated_at = clock_timestamp()
WHERE t.id = ANY ($1::uuid[]) AND NOT EXISTS (SELECT FROM blob_uses u WHERE u.task = t.id AND NOT u.result AND u.digest <> $3 AND NOT EXISTS (SELECT FROM blobs b WHERE b.digest = u.digest AND b.size = u.size AND b.owner = $2))

-- Those that need this one, and have all that they need; also those that have begun, or ended.
-- name: tasks_with_input
SELECT t.id::text FROM (SELECT task FROM blob_uses WHERE digest = $2 AND conn = $1 AND NOT result AND size = $3 OFFSET 0) AS u, LATERAL (SELECT id FROM tasks WHERE id = u.task OFFSET 0) AS t
WHERE NOT awaits_input(t.id) ORDER BY t.id

-- It is not held any more. Those that wait to begin wait for it, and those of an attempt where another one follows.
-- name: input_gone
WITH gone AS (
    DELETE FROM blobs WHERE digest = $4 AND owner = $3
)
UPDATE tasks SET unmet = unmet + 1, reason = CASE WHEN id = ANY ($2::uuid[]) THEN 'waiting_input' ELSE reason END, updated_at = clock_timestamp() WHERE id = ANY ($1::uuid[])

-- Takes held tasks that wait for inputs out of their place. What is paused meanwhile stands in another one.
-- name: pull_inputs
WITH gone AS (
    DELETE FROM parked USING (SELECT p.ctid FROM
-- include: one_by_one
        , LATERAL (SELECT ctid FROM parked WHERE task = u.id AND input OFFSET 0) AS p OFFSET 0) AS place WHERE parked.ctid = place.ctid RETURNING parked.task, parked.workspace, parked.lane, parked.why
), tally AS (
    INSERT INTO tallies (workspace, lane, what, n) SELECT workspace, lane, why, -count(*) FROM gone GROUP BY 1, 2, 3
)
SELECT task::text FROM gone

-- name: waiting_for_input
SELECT p.task::text FROM (SELECT task FROM blob_uses WHERE digest = $2 AND NOT result AND size = $3 OFFSET 0) AS u, LATERAL (SELECT task FROM parked WHERE task = u.task AND input OFFSET 0) AS p,
    LATERAL (SELECT conn FROM tasks WHERE id = p.task OFFSET 0) AS t WHERE t.conn = $1
ORDER BY p.task

-- name: input_lost
WITH moved AS (
    UPDATE tasks SET state = 'unavailable', reason = $2, epoch = epoch + 1, ended_at = clock_timestamp(), updated_at = clock_timestamp(),
        last_error = jsonb_build_object('code', 'INPUT_MISSING', 'text', $3::text, 'attempt', attempt, 'at', clock_timestamp())
    WHERE id = ANY ($1::uuid[]) AND state = 'queued' RETURNING id, workspace, lane, phase, state, conn, ended_at
), audited AS (
    INSERT INTO audit (workspace, actor, action, object, code, why) SELECT workspace, 'self', 'task.unavailable', id::text, $2, $3 FROM moved
),
-- include: tally
SELECT id::text FROM moved

-- name: inputs_of
SELECT u.digest, u.size, EXISTS (SELECT FROM blobs b WHERE b.digest = u.digest AND b.size = u.size AND b.owner = t.conn::text) FROM tasks t JOIN blob_uses u ON u.task = t.id AND NOT u.result WHERE t.id = $1 ORDER BY u.digest

-- name: why_inputs
SELECT count(*) FILTER (WHERE NOT held), coalesce(sum(size) FILTER (WHERE held), 0)::bigint, coalesce(sum(size), 0)::bigint, (SELECT since FROM parked WHERE task = $1 AND input)
FROM (SELECT u.size, EXISTS (SELECT FROM blobs b WHERE b.digest = u.digest AND b.size = u.size AND b.owner = t.conn::text) AS held FROM tasks t JOIN blob_uses u ON u.task = t.id AND NOT u.result WHERE t.id = $1) AS u
