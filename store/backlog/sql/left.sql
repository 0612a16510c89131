-- What tasks have left that travels beside their results.

-- name: hold_left
INSERT INTO blobs (digest, owner, size) SELECT DISTINCT ON (u.digest, u.conn) u.digest, u.conn, u.size FROM unnest($1::text[], $2::text[], $3::bigint[]) AS u (digest, conn, size)
ON CONFLICT (digest, owner) DO UPDATE SET size = excluded.size, at = clock_timestamp()

-- Of attempts whose task goes on it is kept until a later one has left more, or the task is over.
-- name: keep_left
WITH u AS (
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[], $5::jsonb[]) AS u (task, conn, digest, size, work)
), gone AS (
    DELETE FROM blob_uses b USING u WHERE b.task = u.task AND b.result AND b.brought = '' AND b.digest <> u.digest
), held AS (
    INSERT INTO blob_uses (task, conn, digest, result, size) SELECT task, conn, digest, true, size FROM u WHERE digest <> '' ON CONFLICT DO NOTHING
)
UPDATE task_bodies b SET left_work = u.work FROM u WHERE b.task = u.task

-- name: left_before
SELECT task::text, left_work FROM task_bodies WHERE task = ANY ($1::uuid[]) AND left_work IS NOT NULL

-- name: note_left
WITH u AS (
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[]) AS u (task, conn, digest, size)
), gone AS (
    DELETE FROM blob_uses b USING u WHERE b.task = u.task AND b.result AND b.brought = '' AND b.digest <> u.digest
)
INSERT INTO blob_uses (task, conn, digest, result, size, brought) SELECT u.task, u.conn, u.digest, true, u.size, 'due' FROM u
ON CONFLICT (task, digest, result) DO UPDATE SET brought = 'due' WHERE blob_uses.brought = ''

-- Of each connection the oldest tasks first, and behind them what its hub has not taken, when that is offered again.
-- name: left_due
SELECT c.id::text, u.digest, u.size FROM unnest($1::uuid[]) AS c (id), LATERAL (
    SELECT task, digest, size, again FROM blob_uses WHERE conn = c.id AND brought IN ('due', 'refused') AND again <= statement_timestamp() ORDER BY again, task LIMIT $2) AS u
GROUP BY 1, 2, 3 ORDER BY min(u.again), min(u.task::text)

-- What is not taken is offered again after $5.
-- name: left_brought
UPDATE blob_uses SET brought = $4, again = CASE WHEN $4 = 'refused' THEN clock_timestamp() + $5::interval ELSE '-infinity' END
WHERE digest = $2 AND conn = $1 AND result AND size = $3 AND brought IN ('due', 'refused') RETURNING task::text

-- name: left_again
WITH named AS (
    INSERT INTO hub_blobs (conn, name) VALUES ($1, $2) ON CONFLICT (conn) DO UPDATE SET name = excluded.name WHERE hub_blobs.name <> excluded.name RETURNING conn
)
UPDATE blob_uses SET brought = 'due' WHERE conn IN (SELECT conn FROM named) AND brought = 'held'

-- name: left_revoked
UPDATE blob_uses SET brought = 'refused', again = 'infinity' WHERE conn = $1 AND brought IN ('due', 'refused')

-- name: left_held
SELECT task::text FROM blob_uses WHERE task = ANY ($1::uuid[]) AND result GROUP BY task HAVING bool_and(brought = 'held')

-- name: not_over
SELECT id::text FROM tasks WHERE id = ANY ($1::uuid[]) AND NOT is_terminal(state)
