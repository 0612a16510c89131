-- Attempts that had begun before this database was restored from a backup, of tasks that no attempt holds as far as it knows.

-- Which of tasks $1 have begun an attempt above the last one that is known here: as their asker recalls, or as this host has found, $2; 0 = it has found none.
-- name: begun
SELECT b.task::text, b.attempt FROM (
-- include: last_begun
    ) AS b JOIN tasks t ON t.id = b.task WHERE t.conn IS NOT NULL AND NOT is_terminal(t.state) AND b.attempt > t.attempt AND NOT EXISTS (SELECT FROM leases l WHERE l.task = t.id)

-- Attempts that hold tasks $1 although such a later one has begun, and what was asked of them.
-- name: passed
SELECT l.task::text, l.attempt, l.epoch, l.reason FROM (
-- include: last_begun
    ) AS b JOIN leases l ON l.task = b.task WHERE l.conn IS NOT NULL AND b.attempt > l.attempt ORDER BY l.task FOR UPDATE OF l

-- name: last_begun
    SELECT u.task, greatest(u.attempt, (SELECT r.attempt FROM recalled r JOIN tasks own ON own.id = r.task AND own.conn = r.conn WHERE r.task = u.task AND NOT r.over)) AS attempt FROM unnest($1::uuid[], $2::int[]) AS u (task, attempt)

-- The same of tasks that are not here yet, and that connections $3 ask for, each once.
-- name: begun_elsewhere
SELECT DISTINCT u.task::text FROM unnest($1::uuid[], $2::int[], $3::uuid[]) AS u (task, attempt, conn) LEFT JOIN recalled r ON r.task = u.task AND r.conn = u.conn
WHERE NOT r.over OR u.attempt > coalesce(r.attempt, 0)

-- Opens the attempts behind the last ones of tasks that stand nowhere, for this instance and for $2, as those of one claim. Nothing is reserved: no limit keeps what runs from running.
-- What their asker recalls as cancelled may finish.
-- name: open_begun
WITH opened AS (
    INSERT INTO leases (task, workspace, lane, conn, attempt, epoch, type, owner, claim, until, sweep_at, reason)
    SELECT t.id, t.workspace, t.lane, t.conn, t.attempt + 1, t.epoch + 1, t.next_type, i.id, c.id, c.until, c.until, coalesce((SELECT r.reason FROM recalled r WHERE r.task = t.id AND r.conn = t.conn AND NOT r.over), '')
    FROM tasks t, instance i, (SELECT gen_random_uuid() AS id, clock_timestamp() + $2::interval AS until) AS c WHERE t.id = ANY ($1::uuid[])
    RETURNING task, workspace, attempt, owner
)
INSERT INTO audit (workspace, actor, action, object, why, tasks)
SELECT workspace, owner, 'task.claimed', task::text, format('attempt %s, which had begun before this database was restored from a backup', attempt), ARRAY[task] FROM opened

-- How kills of tasks $1 that came before them end those: what may finish has no other kill.
-- name: unbury
WITH here AS (
    UPDATE kills k SET tombstone = false FROM tasks t WHERE t.id = ANY ($1::uuid[]) AND k.task = t.id AND k.conn = t.conn RETURNING k.task, k.cancel
)
SELECT task::text, bool_and(cancel = 'after') FROM here GROUP BY task ORDER BY task

-- Agents of connection $1 that no attempt holds, with ids above $2.
-- name: waiting_agents
SELECT a.id::text, t.attempt FROM agents a JOIN tasks t ON t.id = a.id
WHERE a.conn = $1 AND NOT a.over AND a.id > coalesce(nullif($2::text, ''), '00000000-0000-0000-0000-000000000000')::uuid AND NOT EXISTS (SELECT FROM leases l WHERE l.task = a.id) ORDER BY a.id LIMIT 1000
