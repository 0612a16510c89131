-- name: find_class
SELECT id, xmin IS DISTINCT FROM pg_current_xact_id_if_assigned()::xid, seen < clock_timestamp() - interval '1 hour' FROM classes
WHERE workspace = $1 AND digest = class_digest($1, $2, $3, $4, $5, nullif($6, '')::uuid, NULL, $7)

-- Says that a class is in use. It waits for nobody.
-- name: see_class
UPDATE classes SET seen = clock_timestamp() WHERE id = ANY (ARRAY (SELECT id FROM classes WHERE id = $1 FOR NO KEY UPDATE SKIP LOCKED))

-- Keys and idempotency keys of one call, in one order, before anybody inserts them.
-- name: hold_names
SELECT count(pg_advisory_xact_lock(hashtextextended('names ' || $1, n))) FROM (SELECT DISTINCT hashtext(k) & 255 AS n FROM unnest($2::text[]) AS k ORDER BY n) AS names

-- name: find_existing
SELECT id::text, coalesce(key, ''), coalesce(idempotency_key, ''), request_digest, state FROM tasks
WHERE workspace = $1 AND key = ANY ($2)
UNION SELECT id::text, coalesce(key, ''), coalesce(idempotency_key, ''), request_digest, state FROM tasks
WHERE workspace = $1 AND idempotency_key = ANY ($3)

-- name: hold_tasks
SELECT id::text, coalesce(key, ''), state FROM tasks
WHERE id IN (SELECT id FROM tasks WHERE workspace = $1 AND key = ANY ($2) UNION SELECT unnest($3::uuid[])) ORDER BY id FOR SHARE

-- Adds tasks. What only some have is added by statements of their own, behind it, so
-- that nobody pays for the others' plans.
-- name: create_tasks
WITH new AS (
    SELECT * FROM unnest($3::uuid[], $4::text[], $5::text[], $6::text[], $7::int[], $8::int[], $9::text[], $10::bytea[], $11::text[],
        $12::timestamptz[], $13::int[], $14::int[], $15::text[], $16::text[], $17::jsonb[], $18::bool[], $20::bigint[])
        WITH ORDINALITY AS u (id, key, title, phase, priority, class, idem, digest, on_fail, not_before, retries, unmet, reason, lane, estimate, body, backoff, n)
), added AS (
    INSERT INTO tasks (id, workspace, key, title, phase, priority, class, lane, estimate, idempotency_key, request_digest, on_failed_dep, not_before, max_retries, backoff, unmet, reason, created_by, created_with)
    SELECT id, $1, nullif(key, ''), title, phase, priority, class, lane, estimate, nullif(idem, ''), digest, on_fail, not_before, retries, nullif(backoff, 0) * interval '1 millisecond', unmet, reason, $2, CASE WHEN cardinality($3::uuid[]) > 1 THEN $19::uuid END FROM new ORDER BY n
    RETURNING id, seq, class, lane, estimate, phase, priority, not_before, key, title,
-- include: waits_for
        AS what
), place AS (
    INSERT INTO ready (class, rank, seq, task, workspace, lane, phase, expires_at, estimate, key, title, body)
    SELECT class, -priority, seq, id, $1, lane, phase, 'infinity', estimate, key, title, id IN (SELECT id FROM new WHERE body) FROM added WHERE what = 'ready'
), tally AS (
    INSERT INTO tallies (workspace, lane, what, n) SELECT $1, lane, what, count(*) FROM added GROUP BY 2, 3
)
INSERT INTO audit (workspace, actor, action, object, tasks) SELECT $1, $2, 'task.queued', $19, array_agg(id) FROM added

-- What keeps a new task from being ready.
-- name: waits_for
        CASE WHEN unmet > 0 THEN 'deps' WHEN not_before > now() THEN 'due' ELSE 'ready' END

-- name: create_bodies
INSERT INTO task_bodies (task, workspace, body, acceptance) SELECT task, $1, body, acceptance FROM unnest($2::uuid[], $3::text[], $4::jsonb[]) AS u (task, body, acceptance)

-- name: create_edges
INSERT INTO dependencies (task, dependency, workspace, met) SELECT t, d, $1, m FROM unnest($2::uuid[], $3::uuid[], $4::bool[]) AS e (t, d, m)

-- Gives the tasks $2, just created, their places if they are not ready.
-- name: create_waiting
WITH added AS (
    SELECT id, lane, phase, not_before,
-- include: waits_for
        AS what FROM tasks WHERE id = ANY ($2::uuid[])
), later AS (
    INSERT INTO due (at, task, workspace, lane, phase) SELECT not_before, id, $1, lane, phase FROM added WHERE what = 'due'
)
INSERT INTO parked (task, workspace, lane, phase, why) SELECT id, $1, lane, phase, 'deps' FROM added WHERE what = 'deps'

-- name: tombstones
SELECT k.task::text, k.reason FROM unnest($1::uuid[], $2::uuid[]) AS u (task, conn), LATERAL (SELECT * FROM kills WHERE task = u.task OFFSET 0) AS k
WHERE k.conn = u.conn AND NOT EXISTS (SELECT FROM tasks t WHERE t.id = k.task)

-- Kills are looked up by the task: a connection may have any number of them.
-- name: request_tasks
WITH new AS (
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::uuid[], $5::bytea[], $6::int[], $7::int[], $8::int[], $9::jsonb[], $10::timestamptz[], $11::int[], $14::bigint[])
        WITH ORDINALITY AS u (id, conn, title, command, digest, class, priority, retries, spec, expires_at, losses, backoff, n)
), added AS (
    INSERT INTO tasks (id, conn, title, command, command_digest, class, lane, priority, max_retries, backoff, max_losses, expires_at, reworks, attempt)
    SELECT id, conn, title, command, digest, class, $12, priority, retries, nullif(backoff, 0) * interval '1 millisecond', losses, expires_at, CASE WHEN spec->'review' = 'true' THEN 0 END, coalesce((SELECT r.attempt - (NOT r.over)::int FROM recalled r WHERE r.task = new.id AND r.conn = new.conn), 0) FROM new
    WHERE $15::boolean OR new.conn <> ALL (ARRAY (SELECT k.conn FROM kills k WHERE k.task = new.id)) ORDER BY id
    ON CONFLICT (id) DO NOTHING RETURNING id, seq, workspace, lane, conn, command, class, priority, expires_at, attempt, title
), bodies AS (
    -- A test of membership, and no join: without hash joins that would compare each with each.
    INSERT INTO task_bodies (task, workspace, spec) SELECT id, $13, spec FROM new WHERE ((id, command) IN (SELECT id, command FROM added)) IS TRUE
), foreign_kills AS (
    -- Whoever else forbade a task under this id has none of it.
    DELETE FROM kills k WHERE k.task = ANY (ARRAY (SELECT id FROM added)) AND k.conn <> (SELECT a.conn FROM added a WHERE a.id = k.task)
), agents AS (
    INSERT INTO agents (id, conn, name, runtime) SELECT id, conn, title, spec->>'runtime' FROM new WHERE ((id, command) IN (SELECT id, command FROM added)) IS TRUE
), places AS (
    INSERT INTO ready (class, rank, seq, task, workspace, lane, attempt, title, body, expires_at) SELECT class, -priority, seq, id, workspace, lane, attempt + 1, title, true,
        CASE WHEN EXISTS (SELECT FROM recalled r WHERE r.task = added.id AND r.conn = added.conn AND r.attempt > 0) THEN 'infinity' ELSE expires_at END FROM added
), tally AS (
    INSERT INTO tallies (workspace, lane, what, n) SELECT workspace, lane, 'ready', count(*) FROM added GROUP BY 1, 2
)
SELECT id::text FROM added

-- A task that is asked for again, with the same content, is the new request's, and waits until the later of their ends. Its place is passed over
-- where a claim takes it, or its end.
-- name: request_again
WITH here AS (
    SELECT id, state, attempt, started_at, epoch, result, conn = $2 AND without_box(spec) = without_box($3::jsonb) AS same FROM standing JOIN task_bodies ON task = id WHERE id = $1
), again AS (
    UPDATE tasks t SET command = $4, command_digest = decode($5, 'hex'), expires_at = greatest(t.expires_at, $6) FROM here WHERE t.id = here.id AND here.same
    RETURNING t.workspace, t.class, t.priority, t.seq
), bodies AS (
    -- The sealed environment is bound to the command that it came with.
    UPDATE task_bodies b SET spec = $3::jsonb FROM again JOIN here ON true WHERE b.task = here.id AND b.spec ? 'sealed'
), longer AS (
    UPDATE ready SET expires_at = greatest(expires_at, $6) WHERE ctid = ANY (ARRAY (
        SELECT r.ctid FROM again a JOIN ready r ON r.workspace = a.workspace AND r.class = a.class AND r.rank = -a.priority AND r.seq = a.seq FOR UPDATE OF r SKIP LOCKED))
), aside AS (
    UPDATE parked SET expires_at = greatest(expires_at, $6) WHERE task = ANY (ARRAY (SELECT $1::uuid FROM again)) AND expires_at < 'infinity'
)
SELECT state, attempt, coalesce((extract(epoch FROM started_at) * 1000)::bigint, 0), epoch, CASE WHEN is_terminal(state) OR state IN ('in_review', 'approved') THEN result END, same FROM here
