-- What tasks have left that travels beside their results.

-- Of attempts whose task goes on it is held for a while.
-- name: hold_left
INSERT INTO blobs (digest, owner, size) SELECT DISTINCT ON (u.digest, u.conn) u.digest, u.conn, u.size FROM unnest($1::text[], $2::text[], $3::bigint[]) AS u (digest, conn, size)
ON CONFLICT (digest, owner) DO UPDATE SET size = excluded.size, at = clock_timestamp()

-- name: note_left
INSERT INTO blob_uses (task, digest, result, size, brought) SELECT u.task, u.digest, true, u.size, 'due' FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS u (task, digest, size) ON CONFLICT DO NOTHING

-- The oldest tasks first.
-- name: left_due
SELECT t.conn::text, u.digest, u.size FROM (SELECT task, digest, size FROM blob_uses WHERE brought = 'due' ORDER BY task LIMIT $1) AS u, LATERAL (SELECT conn FROM tasks WHERE id = u.task OFFSET 0) AS t
GROUP BY 1, 2, 3 ORDER BY min(u.task::text)

-- name: left_brought
UPDATE blob_uses b SET brought = $4 FROM (SELECT task FROM blob_uses WHERE digest = $2 AND result AND size = $3 AND brought = 'due' OFFSET 0) AS u, LATERAL (SELECT conn FROM tasks WHERE id = u.task OFFSET 0) AS t
WHERE b.task = u.task AND b.digest = $2 AND b.result AND t.conn = $1 RETURNING b.task::text

-- name: left_held
SELECT task::text FROM blob_uses WHERE task = ANY ($1::uuid[]) AND result AND brought = 'held'

-- name: not_over
SELECT id::text FROM tasks WHERE id = ANY ($1::uuid[]) AND NOT is_terminal(state)
