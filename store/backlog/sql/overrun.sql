-- Attempts that take longer than estimated.

-- What is due of the attempts of owner $1: a warning, or once that was given the end. Progress, and a question that is open, put the end off; what stands still has all the time that it stands. It is
-- of the first $2 that are due. What belongs to no attempt any more goes.
-- name: note_overruns
WITH late AS MATERIALIZED (
    SELECT task, warned_at IS NULL AS fresh FROM overruns WHERE due <= statement_timestamp() ORDER BY due LIMIT $2 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM overruns o USING late WHERE o.task = late.task AND NOT EXISTS (SELECT FROM leases l WHERE l.task = o.task AND l.attempt = o.attempt)
), noted AS (
    UPDATE overruns o SET warned_at = coalesce(o.warned_at, clock_timestamp()),
        over_at = CASE WHEN o.warned_at IS NOT NULL AND NOT l.asking AND coalesce(l.progress_at <= o.due - o.patience, true) THEN clock_timestamp() END,
        due = CASE WHEN o.warned_at IS NULL OR l.asking THEN clock_timestamp() + o.patience WHEN l.progress_at > o.due - o.patience THEN l.progress_at + o.patience END
    FROM late JOIN leases l ON l.task = late.task WHERE o.task = late.task AND l.attempt = o.attempt AND l.owner = $1 AND l.paused_at IS NULL
    RETURNING o.task, o.workspace, late.fresh, o.over_at
)
INSERT INTO audit (workspace, actor, action, object, code, why)
SELECT workspace, 'self', 'task.overrun', task::text, 'overrun', CASE WHEN over_at IS NULL THEN 'it runs much longer than estimated' ELSE 'it runs much longer than estimated and told no progress: it is ended' END
FROM noted WHERE fresh OR over_at IS NOT NULL

-- Those of the attempts of owner $1 that were warned of, and what is due of the others, when that is where the progress puts it off that was told since, and the time now.
-- name: overruns
SELECT o.task::text, o.attempt, o.warned_at IS NOT NULL, o.over_at IS NOT NULL, o.due,
    CASE WHEN o.warned_at IS NULL OR o.due IS NULL THEN o.due ELSE greatest(o.due, l.progress_at + o.patience) END, statement_timestamp()
FROM overruns o JOIN leases l ON l.task = o.task AND l.attempt = o.attempt AND l.owner = $1 AND l.paused_at IS NULL

-- What is due is at another time, where nothing else has changed it.
-- name: move_overruns
UPDATE overruns o SET due = u.due FROM unnest($1::uuid[], $2::int[], $3::timestamptz[], $4::timestamptz[]) AS u (task, attempt, was, due)
WHERE o.task = u.task AND o.attempt = u.attempt AND o.due = u.was

-- Since when the open attempt of task $1 overruns, and when it is ended where it tells no progress.
-- name: overrun_of
SELECT o.warned_at, CASE WHEN o.over_at IS NULL AND l.paused_at IS NULL AND NOT l.asking THEN greatest(o.due, l.progress_at + o.patience) END
FROM overruns o JOIN leases l ON l.task = o.task AND l.attempt = o.attempt WHERE o.task = $1 AND o.warned_at IS NOT NULL
