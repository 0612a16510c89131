-- The kill that lets the agent live for the shortest time is in force; the task says whose it is. An end of the connection stays the reason.
-- name: revoke_lease
WITH killed AS (
    UPDATE tasks SET epoch = epoch + 1, updated_at = clock_timestamp(), reason = CASE WHEN reason = 'link_revoked' THEN reason ELSE (
        SELECT CASE WHEN k.actor = '' THEN 'kill_requested' ELSE 'operator' END FROM kills k WHERE k.task = $1 ORDER BY k.requested_at + k.grace, k.requested_at LIMIT 1) END
    WHERE id = $1 RETURNING id, attempt, epoch
), lease AS (
    UPDATE leases l SET epoch = k.epoch FROM killed k WHERE l.task = k.id
)
SELECT attempt, epoch FROM killed

-- name: pending_kill
SELECT t.attempt, t.epoch, coalesce(min(k.grace) FILTER (WHERE k.answered_at IS NULL), interval '10 seconds')
FROM tasks t LEFT JOIN kills k ON k.task = t.id
WHERE t.id = $1 AND NOT is_terminal(t.state) AND is_kill(t.reason) GROUP BY t.attempt, t.epoch

-- name: revoke_leases
WITH killed AS (
    UPDATE tasks SET epoch = epoch + 1, reason = CASE WHEN is_kill(reason) THEN reason ELSE 'link_revoked' END, updated_at = clock_timestamp()
    WHERE id = ANY ($1::uuid[]) AND (state = 'claimed' OR $2 AND state IN ('running', 'awaiting_input')) RETURNING id, epoch
)
UPDATE leases l SET epoch = k.epoch FROM killed k WHERE l.task = k.id

-- What runs ends for good, whatever its end: retries are spent, and so are reclaims.
-- name: last_attempts
UPDATE tasks SET max_retries = retries, max_losses = least(max_losses, retries), reclaims = 100, updated_at = clock_timestamp()
WHERE id = ANY ($1::uuid[]) AND state IN ('running', 'awaiting_input')

-- name: answer_kills
WITH done AS (
    UPDATE kills k SET answered_at = clock_timestamp() FROM tasks t
    WHERE k.task = ANY ($1::uuid[]) AND k.answered_at IS NULL AND t.id = k.task AND t.conn = k.conn RETURNING k.task, k.command, k.digest, k.actor
)
SELECT task::text, command::text, encode(digest, 'hex'), (extract(epoch FROM clock_timestamp()) * 1000)::bigint FROM done WHERE actor = ''
