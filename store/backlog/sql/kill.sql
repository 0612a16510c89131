-- The kill that lets the agent live for the shortest time is in force, a cancel only where there is no kill; the task says whose it is. An end of the connection stays the reason.
-- name: revoke_lease
UPDATE leases SET epoch = epoch + 1, reason =
-- include: asked_reason
WHERE task = $1 RETURNING attempt, epoch, reason = 'cancel_requested'

-- A cancel that lets the attempt finish: its worker keeps the lease. It says whether its agent is to stand still, and whether this is the first such word.
-- name: last_attempt
WITH was AS MATERIALIZED (
    SELECT is_asked(reason) AS before FROM leases WHERE task = $1 FOR UPDATE
)
UPDATE leases SET reason =
-- include: asked_reason
FROM was WHERE task = $1 RETURNING paused, coalesce(conn::text, ''), NOT was.before

-- Another connection may have forbidden a task under this id before it came: that says nothing of it, here and below.
-- name: asked_reason
    CASE WHEN reason = 'link_revoked' THEN reason ELSE (
        SELECT CASE WHEN k.cancel <> '' THEN 'cancel_requested' WHEN k.actor = '' THEN 'kill_requested' ELSE 'operator' END
        FROM kills k WHERE k.task = $1 AND k.conn = leases.conn ORDER BY k.cancel <> '', k.requested_at + k.grace, k.requested_at LIMIT 1) END

-- name: pending_kill
SELECT l.attempt, l.epoch, coalesce(min(k.grace) FILTER (WHERE k.answered_at IS NULL), interval '10 seconds'), NOT is_kill(l.reason)
FROM leases l LEFT JOIN LATERAL (SELECT task, conn, cancel, grace, answered_at FROM kills WHERE task = l.task OFFSET 0) AS k ON k.conn = l.conn AND k.cancel <> 'after'
WHERE l.task = $1 AND (is_kill(l.reason) OR k.task IS NOT NULL) GROUP BY l.attempt, l.epoch, l.reason

-- Of $3 it is known that they have started.
-- name: revoke_leases
UPDATE leases SET epoch = epoch + 1, reason = CASE WHEN is_kill(reason) THEN reason ELSE 'link_revoked' END
WHERE task = ANY ($1::uuid[]) AND (started_at IS NULL AND (task = ANY ($3::uuid[])) IS NOT TRUE OR $2)

-- What runs ends for good, whatever its end: retries are spent, and so is all else that leads to another attempt.
-- name: last_attempts
UPDATE tasks t SET max_retries = retries, max_losses = least(max_losses, retries), reclaims = 100, parks = 100, updated_at = clock_timestamp()
FROM leases l WHERE l.task = ANY ($1::uuid[]) AND (l.started_at IS NOT NULL OR l.task = ANY ($2::uuid[])) AND t.id = l.task

-- name: answer_kills
WITH done AS (
    UPDATE kills k SET answered_at = clock_timestamp() FROM tasks t
    WHERE k.task = ANY ($1::uuid[]) AND k.answered_at IS NULL AND t.id = k.task AND t.conn = k.conn RETURNING k.task, k.command, k.digest, k.actor
)
SELECT task::text, command::text, encode(digest, 'hex'), (extract(epoch FROM clock_timestamp()) * 1000)::bigint FROM done WHERE actor = ''
