-- The places where a task that has not ended stands: ready, due, parked.

-- Whoever holds the rows of tasks may move them. Everybody holds them in the order
-- of their ids.
-- name: hold
SELECT count(*) FROM (SELECT FROM tasks WHERE id = ANY ($1::uuid[]) ORDER BY id FOR NO KEY UPDATE) AS t

-- Holds tasks together with those that wait for them. Where none does, nothing is
-- held: the statement that moves the tasks does it.
-- name: hold_with_dependents
WITH waiting AS MATERIALIZED (
    SELECT task FROM dependencies WHERE dependency = ANY ($1::uuid[]) AND NOT met
)
SELECT count(*) FROM (
    SELECT FROM tasks WHERE id = ANY (ARRAY (SELECT task FROM waiting UNION ALL SELECT unnest($1::uuid[]) WHERE EXISTS (SELECT FROM waiting)))
    ORDER BY id FOR NO KEY UPDATE) AS t

-- How many of them somebody else holds.
-- name: hold_more
SELECT (SELECT count(*) FROM tasks WHERE id = ANY ($1::uuid[])) - count(*)
FROM (SELECT FROM tasks WHERE id = ANY ($1::uuid[]) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED) AS t

-- Takes held tasks out of due and parked.
-- name: pull_waiting
WITH later AS (
    DELETE FROM due WHERE task = ANY ($1::uuid[]) RETURNING workspace, lane
), waiting AS (
    DELETE FROM parked WHERE task = ANY ($1::uuid[]) RETURNING workspace, lane, why
)
INSERT INTO tallies (workspace, lane, what, n)
SELECT workspace, lane, what, -count(*) FROM (SELECT workspace, lane, 'due' AS what FROM later UNION ALL SELECT workspace, lane, why FROM waiting) AS gone GROUP BY 1, 2, 3

-- Takes held tasks out of ready, except what a claim has.
-- name: pull_ready
WITH gone AS (
    DELETE FROM ready WHERE ctid = ANY (ARRAY (
        SELECT r.ctid FROM tasks t JOIN ready r ON r.workspace = t.workspace AND r.class = t.class AND r.rank = -t.priority AND r.seq = t.seq WHERE t.id = ANY ($1::uuid[]) FOR UPDATE OF r SKIP LOCKED))
    RETURNING workspace, lane
)
INSERT INTO tallies (workspace, lane, what, n) SELECT workspace, lane, 'ready', -count(*) FROM gone GROUP BY 1, 2

-- name: still_ready
SELECT EXISTS (SELECT FROM tasks t JOIN ready r ON r.workspace = t.workspace AND r.class = t.class AND r.rank = -t.priority AND r.seq = t.seq WHERE t.id = ANY ($1::uuid[]))

-- name: unpark
WITH moved AS (
    UPDATE tasks SET state = 'queued', reason = waiting_reason(id), epoch = epoch + 1, updated_at = clock_timestamp() WHERE id = ANY ($1::uuid[]) AND state = 'blocked' RETURNING id
)
INSERT INTO audit (workspace, actor, action, object, why) SELECT $2, $3, $4, id::text, $5 FROM moved

-- name: place
WITH t AS (
    SELECT id, workspace, lane, phase, class, estimate, priority, seq, unmet, not_before, CASE attempt WHEN 0 THEN expires_at ELSE 'infinity' END AS expires_at
    FROM tasks WHERE id = ANY ($1::uuid[]) AND state = 'queued'
), later AS (
    INSERT INTO due (at, task, workspace, lane, phase) SELECT not_before, id, workspace, lane, phase FROM t WHERE unmet = 0 AND not_before > now() ON CONFLICT DO NOTHING RETURNING workspace, lane
), waiting AS (
    INSERT INTO parked (task, workspace, lane, phase, why) SELECT id, workspace, lane, phase, 'deps' FROM t WHERE unmet > 0 RETURNING workspace, lane
), first AS (
    INSERT INTO ready (class, rank, seq, task, workspace, lane, phase, expires_at, estimate)
    SELECT class, -priority, seq, id, workspace, lane, phase, expires_at, estimate FROM t WHERE unmet = 0 AND coalesce(not_before <= now(), true) ON CONFLICT DO NOTHING RETURNING workspace, lane
)
INSERT INTO tallies (workspace, lane, what, n) SELECT workspace, lane, what, count(*) FROM (
    SELECT workspace, lane, 'due' AS what FROM later UNION ALL SELECT workspace, lane, 'deps' FROM waiting UNION ALL SELECT workspace, lane, 'ready' FROM first) AS stand
GROUP BY 1, 2, 3

-- Puts tasks aside until somebody decides.
-- name: park
WITH aside AS (
    INSERT INTO parked (task, workspace, lane, phase, why) SELECT id, workspace, lane, phase, $2 FROM tasks WHERE id = ANY ($1::uuid[]) RETURNING workspace, lane, why
)
INSERT INTO tallies (workspace, lane, what, n) SELECT workspace, lane, why, count(*) FROM aside GROUP BY 1, 2, 3

-- Takes ended tasks off what waits for them. It waits for nobody: a dependent may
-- have any id, and whoever holds it may wait for one of the ended tasks.
-- name: resolve
WITH edges AS (
    UPDATE dependencies d SET met = true FROM tasks t
    WHERE d.dependency = ANY ($1::uuid[]) AND NOT d.met AND t.id = d.dependency
        AND (t.state = 'completed' OR is_terminal(t.state) AND 'ignore' = (SELECT w.on_failed_dep FROM tasks w WHERE w.id = d.task)) RETURNING d.task
), less AS MATERIALIZED (
    SELECT task, count(*)::int AS n FROM edges GROUP BY task
), held AS MATERIALIZED (
    SELECT FROM tasks WHERE id = ANY (ARRAY (SELECT task FROM less)) FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE tasks t SET unmet = CASE WHEN (SELECT count(*) FROM held) < (SELECT count(*) FROM less) THEN raced() ELSE t.unmet - e.n END,
    reason = CASE WHEN t.reason = 'dependency_failed' AND t.unmet = e.n THEN '' ELSE t.reason END, updated_at = clock_timestamp()
FROM less e WHERE t.id = e.task

-- Lets the dependents go on that wait for nothing more, and wakes claimers.
-- name: free
WITH freed AS (
    DELETE FROM parked p USING (SELECT DISTINCT task FROM dependencies WHERE dependency = ANY ($1::uuid[]) AND met) AS d, tasks t
    WHERE p.task = d.task AND p.why = 'deps' AND t.id = d.task AND t.unmet = 0 AND t.state = 'queued'
    RETURNING t.id, t.workspace, t.lane, t.phase, t.class, t.estimate, t.priority, t.seq, t.not_before, coalesce(t.not_before <= now(), true) AS now, CASE t.attempt WHEN 0 THEN t.expires_at ELSE 'infinity' END AS expires_at
), later AS (
    INSERT INTO due (at, task, workspace, lane, phase) SELECT not_before, id, workspace, lane, phase FROM freed WHERE NOT now
), place AS (
    INSERT INTO ready (class, rank, seq, task, workspace, lane, phase, expires_at, estimate) SELECT class, -priority, seq, id, workspace, lane, phase, expires_at, estimate FROM freed WHERE now
), tally AS (
    INSERT INTO tallies (workspace, lane, what, n)
    SELECT workspace, lane, 'deps', -count(*) FROM freed GROUP BY 1, 2
    UNION ALL SELECT workspace, lane, CASE WHEN now THEN 'ready' ELSE 'due' END, count(*) FROM freed GROUP BY 1, 2, 3
)
SELECT pg_notify('spawnmesh_ready', '') FROM (SELECT FROM freed LIMIT 1) AS f WHERE EXISTS (SELECT FROM listeners WHERE until > now())
