-- The places where a task that has not ended stands: ready, due, parked.

-- Whoever holds the rows of tasks may move them from place to place. Everybody holds
-- them in the order of their ids. From ready a claim takes them too, which holds no
-- task: whoever deletes the row of ready has the task.
-- name: hold
SELECT count(*) FROM (SELECT FROM tasks WHERE id = ANY ($1::uuid[]) ORDER BY id FOR NO KEY UPDATE) AS t

-- Holds tasks together with those that wait for them. Where none does, nothing is
-- held: the statement that moves the tasks does it.
-- name: hold_with_dependents
WITH waiting AS MATERIALIZED (
    SELECT task FROM dependencies WHERE dependency = ANY ($1::uuid[]) AND NOT met
), leased AS MATERIALIZED (
    SELECT FROM leases WHERE task = ANY ($1::uuid[]) AND EXISTS (SELECT FROM waiting) ORDER BY task FOR UPDATE
)
SELECT count(*) FROM (
    SELECT FROM tasks WHERE id = ANY (ARRAY (SELECT task FROM waiting UNION ALL SELECT unnest($1::uuid[]) WHERE EXISTS (SELECT FROM waiting)))
        AND (SELECT count(*) FROM leased) >= 0
    ORDER BY id FOR NO KEY UPDATE) AS t

-- How many of them, or of their leases, somebody else holds.
-- name: hold_more
SELECT (SELECT count(*) FROM tasks WHERE id = ANY ($1::uuid[])) + (SELECT count(*) FROM leases WHERE task = ANY ($1::uuid[]))
    - (SELECT count(*) FROM (SELECT FROM leases WHERE task = ANY ($1::uuid[]) ORDER BY task FOR UPDATE SKIP LOCKED) AS l)
    - (SELECT count(*) FROM (SELECT FROM tasks WHERE id = ANY ($1::uuid[]) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED) AS t)

-- Takes held tasks out of due and parked, and says which stood there.
-- name: pull_waiting
WITH later AS (
    DELETE FROM due WHERE task = ANY ($1::uuid[]) RETURNING task, workspace, lane
), waiting AS (
    DELETE FROM parked WHERE task = ANY ($1::uuid[]) RETURNING task, workspace, lane, why
), gone AS (
    SELECT task, workspace, lane, 'due' AS what FROM later UNION ALL SELECT task, workspace, lane, why FROM waiting
), tally AS (
    INSERT INTO tallies (workspace, lane, what, n) SELECT workspace, lane, what, -count(*) FROM gone GROUP BY 1, 2, 3
)
SELECT task::text FROM gone

-- The tasks of $1, of which the planner expects one, since it does not know the LIMIT. What begins with them is looked up task by task:
-- with more it would take all of a workspace for less where it has few rows yet, and keep that plan when it has many.
-- name: one_by_one
    (SELECT id FROM unnest($1::uuid[]) AS u (id) LIMIT cardinality($1::uuid[])) AS u

-- The places of held tasks in ready, each by its whole key: the primary key alone has this order.
-- name: places_ready
    FROM
-- include: one_by_one
        , LATERAL (SELECT workspace, class, -priority AS rank, seq FROM tasks WHERE id = u.id OFFSET 0) AS t,
        LATERAL (SELECT ctid FROM ready WHERE workspace = t.workspace AND class = t.class AND rank = t.rank AND seq BETWEEN t.seq AND t.seq ORDER BY seq

-- Holds them.
-- name: hold_ready
SELECT
-- include: places_ready
    FOR UPDATE) AS r

-- Takes held tasks out of ready, and says which stood there. A claim that has one of them
-- is waited for: it waits for no task.
-- name: pull_ready
WITH gone AS (
    DELETE FROM ready USING (SELECT r.ctid
-- include: places_ready
    ) AS r OFFSET 0) AS place WHERE ready.ctid = place.ctid RETURNING ready.task, ready.workspace, ready.lane
), tally AS (
    INSERT INTO tallies (workspace, lane, what, n) SELECT workspace, lane, 'ready', -count(*) FROM gone GROUP BY 1, 2
)
SELECT task::text FROM gone

-- name: unpark
WITH moved AS (
    UPDATE tasks SET state = 'queued', reason = waiting_reason(id), epoch = epoch + 1, updated_at = clock_timestamp() WHERE id = ANY ($1::uuid[]) AND state = ANY ($6::text[]::task_state[]) RETURNING id
)
INSERT INTO audit (workspace, actor, action, object, why) SELECT $2, $3, $4, id::text, $5 FROM moved

-- name: place
WITH t AS (
    SELECT * FROM tasks WHERE id = ANY ($1::uuid[]) AND state = 'queued'
), later AS (
    INSERT INTO due (at, made_at, task, workspace, lane, phase) SELECT not_before, CASE WHEN attempt > 0 THEN now() END, id, workspace, lane, phase FROM t WHERE unmet = 0 AND not_before > now() ON CONFLICT DO NOTHING RETURNING workspace, lane
), waiting AS (
    INSERT INTO parked (task, workspace, lane, phase, why, input, expires_at) SELECT id, workspace, lane, phase, 'deps', awaits_input(id), CASE attempt WHEN 0 THEN expires_at ELSE 'infinity' END FROM t WHERE unmet > 0 RETURNING workspace, lane
), first AS (
-- include: enter_ready
    FROM t WHERE unmet = 0 AND coalesce(not_before <= now(), true) ON CONFLICT DO NOTHING RETURNING workspace, lane
)
INSERT INTO tallies (workspace, lane, what, n) SELECT workspace, lane, what, count(*) FROM (
    SELECT workspace, lane, 'due' AS what FROM later UNION ALL SELECT workspace, lane, 'deps' FROM waiting UNION ALL SELECT workspace, lane, 'ready' FROM first) AS stand
GROUP BY 1, 2, 3

-- Makes tasks t claimable.
-- name: enter_ready
    INSERT INTO ready (class, rank, seq, task, workspace, lane, phase, expires_at, estimate, attempt, epoch, type, key, title, body)
    SELECT t.class, -t.priority, t.seq, t.id, t.workspace, t.lane, t.phase, CASE t.attempt WHEN 0 THEN t.expires_at ELSE 'infinity' END, t.estimate,
        t.attempt + 1, t.epoch + 1, t.next_type, t.key, t.title, EXISTS (SELECT FROM task_bodies b WHERE b.task = t.id)

-- Puts tasks aside until somebody decides.
-- name: park
WITH aside AS (
    INSERT INTO parked (task, workspace, lane, phase, why) SELECT id, workspace, lane, phase, $2 FROM tasks WHERE id = ANY ($1::uuid[]) RETURNING workspace, lane, why
)
INSERT INTO tallies (workspace, lane, what, n) SELECT workspace, lane, why, count(*) FROM aside GROUP BY 1, 2, 3

-- Takes ended tasks off what waits for them, and withdraws what their agents have asked. It waits for nobody: a dependent may
-- have any id, and whoever holds it may wait for one of the ended tasks.
-- name: resolve
WITH withdrawn AS (
    UPDATE questions q SET outcome = 'withdrawn', answered_at = clock_timestamp()
    WHERE q.task = ANY ($1::uuid[]) AND q.answered_at IS NULL AND (SELECT t.ended_at IS NOT NULL FROM tasks t WHERE t.id = q.task)
), edges AS (
    UPDATE dependencies d SET met = true
    WHERE d.dependency = ANY ($1::uuid[]) AND NOT d.met AND (
        SELECT t.state = 'completed' OR is_terminal(t.state) AND 'ignore' = (SELECT w.on_failed_dep FROM tasks w WHERE w.id = d.task) FROM tasks t WHERE t.id = d.dependency) RETURNING d.task
), less AS MATERIALIZED (
    SELECT task, count(*)::int AS n FROM edges GROUP BY task
), held AS MATERIALIZED (
    SELECT FROM tasks WHERE id = ANY (ARRAY (SELECT task FROM less)) FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE tasks t SET unmet = CASE WHEN (SELECT count(*) FROM held) < (SELECT count(*) FROM less) THEN raced() ELSE t.unmet - e.n END,
    reason = CASE WHEN t.reason = 'dependency_failed' AND t.unmet = e.n THEN '' ELSE t.reason END, updated_at = clock_timestamp()
FROM less e WHERE t.id = e.task

-- Lets the dependents go on that wait for nothing more, and wakes claimers. Each is looked
-- up by itself: a plan for a small parked would walk all of it when it is large.
-- name: free
WITH gone AS (
    DELETE FROM parked USING (
        SELECT p.ctid FROM (SELECT DISTINCT e.task FROM
-- include: one_by_one
            , LATERAL (SELECT task, met FROM dependencies WHERE dependency = u.id OFFSET 0) AS e WHERE e.met) AS d,
            LATERAL (SELECT FROM tasks WHERE id = d.task AND unmet = 0 AND state = 'queued' OFFSET 0) AS t, LATERAL (SELECT ctid FROM parked WHERE task = d.task AND why = 'deps' OFFSET 0) AS p OFFSET 0) AS place
    WHERE parked.ctid = place.ctid RETURNING parked.task
), freed AS (
    SELECT t.*, coalesce(t.not_before <= now(), true) AS now FROM gone g, LATERAL (SELECT * FROM tasks WHERE id = g.task OFFSET 0) AS t
), later AS (
    INSERT INTO due (at, task, workspace, lane, phase) SELECT not_before, id, workspace, lane, phase FROM freed WHERE NOT now
), place AS (
-- include: enter_ready
    FROM freed t WHERE now
), tally AS (
    INSERT INTO tallies (workspace, lane, what, n)
    SELECT workspace, lane, 'deps', -count(*) FROM freed GROUP BY 1, 2
    UNION ALL SELECT workspace, lane, CASE WHEN now THEN 'ready' ELSE 'due' END, count(*) FROM freed GROUP BY 1, 2, 3
)
SELECT pg_notify('spawnmesh_ready', '') FROM (SELECT FROM freed LIMIT 1) AS f WHERE EXISTS (SELECT FROM listeners WHERE until > now())
