-- name: add_edge
WITH edge AS (
    INSERT INTO dependencies (task, dependency, workspace, met) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING RETURNING met
)
UPDATE tasks SET unmet = unmet + coalesce((SELECT (NOT met)::int FROM edge), 0), updated_at = clock_timestamp(),
    reason = CASE WHEN $5 THEN 'dependency_failed' ELSE reason END
WHERE id = $1 AND state = $6

-- name: walk_dependencies
WITH RECURSIVE walk (node, via) AS (
    SELECT $1::uuid, NULL::uuid
    UNION
    SELECT d.dependency, w.node FROM walk w JOIN dependencies d ON d.task = w.node WHERE w.node <> $2
)
SELECT w.node::text, coalesce(w.via::text, ''), coalesce(t.key, t.id::text) FROM walk w JOIN tasks t ON t.id = w.node

-- name: drop_edge
UPDATE tasks t SET unmet = unmet - $3::int, updated_at = clock_timestamp(),
    reason = CASE WHEN reason = 'dependency_failed' THEN waiting_reason(id) ELSE reason END
WHERE id = $1 AND state = $2

-- name: waiting_dependents
SELECT DISTINCT e.task::text FROM unnest($1::uuid[]) AS u (id), LATERAL (SELECT task, met FROM dependencies WHERE dependency = u.id OFFSET 0) AS e WHERE NOT e.met

-- name: tell_dependents
UPDATE tasks SET reason = 'dependency_failed', updated_at = clock_timestamp()
WHERE id = ANY ($1::uuid[]) AND on_failed_dep = 'hold' AND state = 'queued'

-- Those that end with the tasks of $1, and those that end with these, however long the chain.
-- name: dependents_to_cancel
WITH RECURSIVE ends AS (
    SELECT t.id FROM unnest($1::uuid[]) AS u (id), LATERAL (SELECT task, met FROM dependencies WHERE dependency = u.id OFFSET 0) AS d JOIN tasks t ON t.id = d.task
    WHERE NOT d.met AND t.on_failed_dep = 'cancel' AND t.state = ANY ($2::text[]::task_state[])
    UNION
    SELECT t.id FROM ends e, LATERAL (SELECT task, met FROM dependencies WHERE dependency = e.id OFFSET 0) AS d JOIN tasks t ON t.id = d.task
    WHERE NOT d.met AND t.on_failed_dep = 'cancel' AND t.state = ANY ($2::text[]::task_state[])
)
SELECT id::text FROM ends

-- name: reassure_dependents
UPDATE tasks t SET reason = waiting_reason(id), updated_at = clock_timestamp()
WHERE id = ANY (ARRAY (SELECT task FROM dependencies WHERE dependency = $1 AND NOT met)) AND reason = 'dependency_failed' AND state = 'queued'

-- Who waits for whom, as far as somebody waits for the one, and the other one waits itself: a circle is among these.
-- name: waits_between
SELECT d.task::text, d.dependency::text, coalesce(t.key, t.id::text)
FROM parked p JOIN dependencies d ON d.task = p.task AND NOT d.met JOIN tasks t ON t.id = d.task JOIN tasks x ON x.id = d.dependency AND NOT is_terminal(x.state)
WHERE EXISTS (SELECT FROM dependencies u WHERE u.task = d.dependency AND NOT u.met) AND EXISTS (SELECT FROM dependencies w WHERE w.dependency = d.task AND NOT w.met)
    AND ($1::uuid[] IS NULL OR d.task = ANY ($1) AND d.dependency = ANY ($1))