-- What agents themselves say of their attempts: each as far as its fence holds, and its end was not ordered.

-- name: heard
UPDATE leases l SET heard_at = clock_timestamp()
-- include: by_fence
RETURNING clock_timestamp()

-- name: by_fence
WHERE l.task = $1 AND l.attempt = $2 AND l.epoch = $3 AND NOT is_kill(l.reason)

-- $5 is how many an attempt keeps.
-- name: say_progress
WITH held AS (
    UPDATE leases l SET heard_at = n.at, progress = $4, progress_at = n.at, progress_n = l.progress_n + 1 FROM (SELECT clock_timestamp() AS at) AS n
-- include: by_fence
    RETURNING l.task, l.attempt, l.workspace, l.progress_n, n.at
), said AS (
    INSERT INTO progress (task, attempt, n, workspace, said, at) SELECT task, attempt, progress_n, workspace, $4, at FROM held
), old AS (
    DELETE FROM progress p USING held h WHERE p.task = h.task AND p.attempt = h.attempt AND p.n <= h.progress_n - $5
)
SELECT progress_n, at FROM held

-- name: say_end
UPDATE leases l SET heard_at = clock_timestamp(), word = $4
-- include: by_fence
RETURNING clock_timestamp()

-- The newest first.
-- name: progress_of
SELECT attempt, n, said, at FROM progress WHERE task = $1 ORDER BY attempt DESC, n DESC LIMIT $2

-- What the open attempts of owner $1 have said last.
-- name: last_progress
SELECT task::text, attempt, progress_n, progress, progress_at FROM leases WHERE owner = $1 AND progress IS NOT NULL

-- How an attempt stands whose fence does not hold: what became of it, and how its task stands.
-- name: overtaken
SELECT t.state, t.reason, t.attempt, coalesce((SELECT a.outcome FROM attempts a WHERE a.task = t.id AND a.number = $2), '') FROM standing t WHERE t.id = $1
