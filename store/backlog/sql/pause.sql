-- What is to stand still. Who changes it holds the task as it stands.

-- How a task stands that may be paused, whose it is, whether an attempt holds it, and whether that is to end.
-- name: pausable
SELECT s.state, coalesce(s.conn::text, ''), s.owner IS NOT NULL, s.owner IS NOT NULL AND is_asked(s.reason), coalesce((SELECT p.times FROM pauses p WHERE p.task = s.id AND p.conn = s.conn), 0) FROM standing s WHERE s.id = $1

-- The newest word counts. $3 is its number; null = the next one, which is this host's.
-- name: note_pause
INSERT INTO pauses AS p (task, conn, number, paused, reason, actor, early, times) VALUES ($1, $2, coalesce($3::bigint, 1), $4::boolean, $5, $6, $7::timestamptz, $4::boolean::int)
ON CONFLICT (task, conn) DO UPDATE SET number = coalesce($3::bigint, p.number + 1), paused = excluded.paused, reason = excluded.reason, actor = excluded.actor, at = clock_timestamp(), early = excluded.early,
    times = p.times + (excluded.paused AND NOT p.paused)::int
WHERE $3::bigint IS NULL OR p.number < $3::bigint

-- What the asker recalls of a pause, $4, is this host's next word, and newer than the asker's own up to $3. What was said here since the restore, $8, is newer still. It returns
-- whether the task is to stand still then; no row: nobody has said so.
-- name: note_recalled_word
WITH kept AS (
    UPDATE pauses SET number = greatest(number, $3) WHERE task = $1 AND conn = $2 AND at >= $8 RETURNING paused
), noted AS (
    INSERT INTO pauses AS p (task, conn, number, paused, reason, actor, early, times) SELECT $1, $2, $3::bigint, $4::boolean, $5, $6, $7::timestamptz, $4::boolean::int
    WHERE NOT EXISTS (SELECT FROM kept) AND ($4::boolean OR $3::bigint > 1 OR EXISTS (SELECT FROM pauses WHERE task = $1 AND conn = $2))
    ON CONFLICT (task, conn) DO UPDATE SET number = greatest(p.number + 1, excluded.number), paused = excluded.paused, reason = excluded.reason, actor = excluded.actor, at = clock_timestamp(), early = excluded.early, times = p.times + excluded.times
    RETURNING paused
)
SELECT paused FROM kept UNION ALL SELECT paused FROM noted

-- name: early_pauses
SELECT p.task::text FROM unnest($1::uuid[], $2::uuid[]) AS u (task, conn) JOIN pauses p ON p.task = u.task AND p.conn = u.conn AND p.early IS NOT NULL AND p.paused

-- Those that do not start.
-- name: pause_waiting
WITH moved AS (
    UPDATE tasks SET state = 'paused', reason = 'operator', epoch = epoch + 1, updated_at = clock_timestamp() WHERE id = ANY ($1::uuid[]) AND state = 'queued' RETURNING id, workspace
)
INSERT INTO audit (workspace, actor, action, object, code) SELECT workspace, $2, 'task.paused', id::text, 'operator' FROM moved

-- What the agent of an attempt is to do. It says the attempt, whether it is known to do that already, and whether it is not known to stand still any more. How long it stood still counts until it is to go on: what it was
-- estimated to take is that much longer. It may stand still for longer than that, and never for less.
-- name: pause_lease
WITH was AS MATERIALIZED (
    SELECT attempt, progress_at, started_at IS NOT NULL AND paused = $2 AND (paused_at IS NOT NULL) = $2 AS already, CASE WHEN paused AND NOT $2::boolean THEN clock_timestamp() - paused_at END AS stood, NOT paused AND $2::boolean AND paused_at IS NOT NULL AS doubtful FROM leases WHERE task = $1 FOR UPDATE
), later AS (
    UPDATE overruns o SET due = CASE WHEN o.warned_at IS NULL OR o.due IS NULL THEN o.due ELSE greatest(o.due, was.progress_at + o.patience) END + was.stood FROM was WHERE was.stood IS NOT NULL AND o.task = $1 AND o.attempt = was.attempt
)
UPDATE leases l SET paused = $2, stood = l.stood + coalesce(was.stood, '0'), paused_at = CASE WHEN NOT $2 OR l.paused THEN l.paused_at END
FROM was WHERE l.task = $1 RETURNING l.attempt, l.epoch, was.already, was.doubtful

-- The agent of an attempt stands still, or goes on, as it is to.
-- name: mark_paused
UPDATE leases l SET paused_at = CASE WHEN $4::boolean THEN clock_timestamp() END
-- include: by_fence
AND l.started_at IS NOT NULL AND l.paused = $4 AND (l.paused_at IS NOT NULL) <> $4 RETURNING l.workspace

-- Attempts of owner $1 whose agents are to stand still, or are to go on and are not known to.
-- name: to_pause
SELECT task::text, attempt, epoch, paused FROM leases WHERE owner = $1 AND (paused OR paused_at IS NOT NULL)

-- How a task stands now, as who asked for it is told: after a pause, a cancel or a set clock, when a question got lost, and where it may be known otherwise there.
-- name: told_standing
SELECT s.state, s.reason, s.attempt, s.epoch, coalesce(s.conn::text, ''), coalesce(s.command::text, ''), coalesce(encode(s.command_digest, 'hex'), ''), (extract(epoch FROM clock_timestamp()) * 1000)::bigint, CASE WHEN s.state = 'queued' AND s.attempt > 0 THEN s.not_before END FROM standing s WHERE s.id = $1

-- Agents of workspace $1 that are paused and that no attempt holds.
-- name: paused_agents
SELECT p.task::text, t.attempt, t.conn::text FROM parked p JOIN tasks t ON t.id = p.task WHERE p.workspace = $1 AND p.why = 'paused' AND t.conn IS NOT NULL

-- Takes what is paused out of where it stands.
-- name: pull_paused
WITH gone AS (
    DELETE FROM parked WHERE task = ANY ($1::uuid[]) AND why = 'paused' RETURNING task, workspace, lane, why
), tally AS (
    INSERT INTO tallies (workspace, lane, what, n) SELECT workspace, lane, why, -count(*) FROM gone GROUP BY 1, 2, 3
)
SELECT task::text FROM gone

-- The agent of an attempt that has not started, as far as is known, is to stand still where the last word is a pause.
-- name: keep_paused
UPDATE leases l SET paused = true FROM pauses p
-- include: by_fence
AND l.started_at IS NULL AND p.task = l.task AND p.conn = l.conn AND p.early IS NULL AND p.paused
