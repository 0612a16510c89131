-- What lists leave out.

-- Leaves an ended task out of lists, or shows it in them again.
-- name: archive
UPDATE ended SET archived_at = CASE WHEN $4 THEN clock_timestamp() END WHERE workspace = $1 AND state = $2 AND archived = NOT $4::boolean AND task = $3

-- Of the next $7 tasks behind $3 that have ended in the states $2 and that lists have: the last one where there may be more, and
-- those cards that ended longer than $4 ago, of lane $5 and phase $6.
-- name: archivable
WITH seen AS MATERIALIZED (
        SELECT e.* FROM unnest($2::text[]) AS s, LATERAL (
            SELECT task, at, lane, phase FROM ended WHERE workspace = $1 AND (state, archived) <= (s, false) AND (state, archived, task) > (s, false, $3::uuid) ORDER BY state, archived, task LIMIT $7) AS e
        ORDER BY e.task LIMIT $7
    )
-- include: archivable_rows

-- name: archivable_of_lane
WITH seen AS MATERIALIZED (
        SELECT e.* FROM unnest($2::text[]) AS s, LATERAL (
            SELECT task, at, lane, phase FROM ended WHERE workspace = $1 AND lane = $5 AND (state, archived) <= (s, false) AND (state, archived, task) > (s, false, $3::uuid) ORDER BY state, archived, task LIMIT $7) AS e
        ORDER BY e.task LIMIT $7
    )
-- include: archivable_rows

-- name: archivable_of_phase
WITH seen AS MATERIALIZED (
        SELECT e.* FROM unnest($2::text[]) AS s, LATERAL (
            SELECT task, at, lane, phase FROM ended WHERE workspace = $1 AND phase = $6 AND phase <> '' AND (state, archived) <= (s, false) AND (state, archived, task) > (s, false, $3::uuid) ORDER BY state, archived, task LIMIT $7) AS e
        ORDER BY e.task LIMIT $7
    )
-- include: archivable_rows

-- name: archivable_rows
SELECT CASE WHEN (SELECT count(*) FROM seen) = $7::int THEN (SELECT task::text FROM seen ORDER BY seen.task DESC LIMIT 1) ELSE '' END, ARRAY (
    SELECT n.task::text FROM seen n, LATERAL (SELECT class FROM tasks WHERE id = n.task OFFSET 0) AS t, LATERAL (SELECT kind FROM classes WHERE id = t.class OFFSET 0) AS c
    WHERE n.at <= statement_timestamp() - $4::interval AND ($5 = '' OR n.lane = $5) AND ($6 = '' OR n.phase = $6) AND c.kind <> 'agent' ORDER BY n.task)

-- Those of them that are held.
-- name: archive_some
WITH moved AS (
    UPDATE ended SET archived_at = clock_timestamp() WHERE workspace = $1 AND state = ANY ($2::text[]) AND archived = false AND task = ANY ($3::uuid[]) AND at <= statement_timestamp() - $4::interval RETURNING task
)
INSERT INTO audit (workspace, actor, action, object) SELECT $1, $5, 'task.archived', task::text FROM moved
