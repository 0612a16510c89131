-- What is null stays as it is.
-- name: keep_checkpoint
WITH held AS (
    UPDATE leases l SET heard_at = clock_timestamp()
-- include: by_fence
    RETURNING l.task, l.attempt, l.workspace, l.heard_at
)
INSERT INTO task_checkpoints AS c (task, workspace, attempt, digest, size, session, at) SELECT task, workspace, attempt, coalesce($4, ''), coalesce($5, 0), coalesce($6, ''), heard_at FROM held
ON CONFLICT (task) DO UPDATE SET attempt = excluded.attempt, at = excluded.at, digest = CASE WHEN $4::text IS NULL THEN c.digest ELSE excluded.digest END,
    size = CASE WHEN $4::text IS NULL THEN c.size ELSE excluded.size END, session = coalesce($6, c.session)
RETURNING at

-- name: last_checkpoint
SELECT digest, size, session, EXISTS (SELECT FROM leases WHERE task = $1 AND started_at IS NOT NULL) FROM task_checkpoints WHERE task = $1

-- Of tasks, those whose checkpoint is still wanted: they go on, or ended not so long ago.
-- name: with_checkpoints
SELECT c.task::text FROM task_checkpoints c JOIN tasks t ON t.id = c.task WHERE c.task = ANY ($1::uuid[]) AND (t.ended_at IS NULL OR t.ended_at > clock_timestamp() - $2::interval)
