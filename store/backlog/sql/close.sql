-- The ends of attempts, and of tasks that no attempt holds.

-- Ends attempts, as far as the fences hold, in the order of the tasks' ids. What a claim reserved is charged as the estimate, unless usage of that dimension
-- was reported meanwhile or the work never began.
--
-- Parameters: $1 tasks, $2 attempts, $3 epochs, $4 outcomes, $5 exits, $6 reasons,
-- $7 whether final, $8 delays in ms, $9 and $10 the least and the longest back-off,
-- $11 the actor, $12 when the attempts ended in µs since 1970, 0 where nothing says so, $13 how they failed,
-- $14 whether a later attempt has begun: then the task goes on, whatever was asked of this one.
-- name: close_attempts
-- include: fences
-- include: closing
SELECT n,
-- include: moved_columns
    , at FROM moved ORDER BY n

-- close_attempts for workers of cards that are done: the task ends, and nothing but
-- its dependents follows. It answers with the places in the list.
-- name: complete_attempts
-- include: fences
        AND NOT is_kill(l.reason) AND l.conn IS NULL
-- include: closing
SELECT n FROM moved

-- All leases are held before the first task.
-- name: fences
WITH f AS (
    SELECT * FROM unnest($1::uuid[], $2::int[], $3::bigint[], $4::text[], $5::jsonb[], $6::text[], $7::bool[], $8::bigint[], $12::bigint[], $13::jsonb[], $14::bool[])
        WITH ORDINALITY AS u (task, attempt, epoch, outcome, exit, why, final, delay, ended, error, passed, n) ORDER BY task
), closed AS (
    DELETE FROM leases l USING f WHERE l.task = f.task AND l.attempt = f.attempt AND l.epoch = f.epoch

-- name: closing
    RETURNING l.task, l.attempt, l.workspace, l.epoch, l.type, l.owner, l.claim, l.claimed_at, l.started_at, l.budgets, l.reserved, l.used, CASE WHEN f.passed THEN '' ELSE l.reason END AS reason, l.asking, l.paused, f.outcome, f.exit, f.why, f.final, f.passed, f.delay, f.error, f.n,
-- include: end_time
        AS at
), moved AS (
    UPDATE tasks t SET attempt = f.attempt, epoch = f.epoch, started_at = coalesce(t.started_at, f.started_at), updated_at = clock_timestamp(), state =
-- include: next_state
        , reason = next_reason(counts_as(f.outcome, t.max_losses), f.final, f.why, f.reason, t.retries, t.max_retries, t.max_losses, t.reclaims),
        ended_at = CASE WHEN is_terminal(
-- include: next_state
            ) THEN f.at END,
        retries = t.retries + (counts_as(f.outcome, t.max_losses) IN ('failed', 'lost') AND t.retries < greatest(t.max_retries, t.max_losses) AND
-- include: next_state
            IN ('queued', 'awaiting_input', 'paused'))::int,
        reclaims = t.reclaims + (counts_as(f.outcome, t.max_losses) = 'interrupted' AND
-- include: next_state
            IN ('queued', 'paused'))::int,
        parks = t.parks + (f.outcome = 'parked')::int,
        next_type = CASE WHEN f.asking THEN 'resume' ELSE CASE f.outcome WHEN 'failed' THEN 'retry' WHEN 'interrupted' THEN 'reclaim' WHEN 'blocked' THEN 'resume' WHEN 'parked' THEN 'resume' ELSE t.next_type END END,
        not_before = CASE WHEN counts_as(f.outcome, t.max_losses) IN ('failed', 'lost') OR t.max_losses IS NOT NULL AND counts_as(f.outcome, t.max_losses) = 'interrupted'
                THEN now() + least($10::interval, coalesce(t.backoff, $9::interval) * 2 ^ least(CASE counts_as(f.outcome, t.max_losses) WHEN 'interrupted' THEN t.reclaims ELSE t.retries END, 20)) * random()
            WHEN f.outcome = 'parked' THEN now() + interval '5 minutes' * least(12, 2 ^ least(t.parks, 10)) * (0.5 + random() / 2)
            WHEN f.delay > 0 THEN now() + f.delay * interval '1 millisecond' END,
        last_error = CASE WHEN f.outcome = 'succeeded' THEN NULL WHEN f.error IS NULL THEN t.last_error ELSE f.error || jsonb_build_object('at', f.at) END,
        (last_type, last_owner, last_claim, last_claimed_at, last_started_at, last_outcome, last_exit) = (
            SELECT f.type, f.owner, f.claim, f.claimed_at, f.started_at, f.outcome, f.exit WHERE is_terminal(
-- include: next_state
            ))
    FROM (SELECT * FROM closed ORDER BY task) AS f WHERE t.id = f.task
    RETURNING t.id, t.workspace, t.class, t.lane, t.phase, t.attempt, t.epoch, t.state, t.reason, t.conn, t.command, t.command_digest, t.started_at, t.not_before, t.ended_at, f.n, f.outcome, f.at,
        f.exit, f.type, f.owner, f.claim, f.claimed_at, f.started_at AS began, f.budgets, f.reserved, f.used
-- include: closing_rest

-- name: next_state
            next_state(CASE WHEN f.passed THEN 'released' WHEN t.reworks IS NOT NULL AND f.outcome = 'succeeded' THEN 'delivered' ELSE counts_as(f.outcome, t.max_losses) END, f.final, f.reason, t.retries, t.max_retries, t.max_losses, t.reclaims, t.parks, f.asking, f.paused)

-- When an attempt ended, as the record of its end says: the agent can write to that, so no time counts before the start of the attempt or after now.
-- name: end_time
        coalesce((SELECT e.at FROM (SELECT timestamptz 'epoch' + f.ended * interval '1 microsecond' AS at) AS e
            WHERE f.ended > 0 AND e.at BETWEEN l.started_at AND clock_timestamp()), clock_timestamp())

-- What follows from the ends.
-- name: closing_rest
), alike AS MATERIALIZED (
    SELECT budgets, reserved, used, outcome, count(*) AS n FROM moved WHERE budgets IS NOT NULL GROUP BY 1, 2, 3, 4
), dues AS MATERIALIZED (
    SELECT b.id, b.workspace, b.rolling, sum(c.n * takes(c.reserved, b.dimension))::bigint AS held,
        (sum(c.n * takes(c.reserved, b.dimension)) FILTER (WHERE c.outcome NOT IN ('released', 'unavailable') AND NOT coalesce(c.used ? b.dimension, false)))::bigint AS spent
    FROM alike c JOIN budgets b ON b.id = ANY (c.budgets) GROUP BY b.id, b.workspace, b.rolling ORDER BY b.id
), settled AS (
    INSERT INTO budget_shards AS s (budget, shard, workspace, used, reserved) SELECT id, budget_shard(), workspace, coalesce(spent, 0), -held FROM dues WHERE held > 0
    ON CONFLICT (budget, shard) DO UPDATE SET used = s.used + excluded.used, reserved = s.reserved + excluded.reserved
), kept AS (
    INSERT INTO ended_attempts (task, number, workspace, epoch, type, owner, claim, claimed_at, started_at, ended_at, outcome, exit)
    SELECT id, attempt, workspace, epoch, type, owner, claim, claimed_at, began, at, outcome, exit FROM moved WHERE NOT is_terminal(state)
), charged AS (
    INSERT INTO charges (budget, workspace, amount) SELECT id, workspace, spent FROM dues WHERE rolling IS NOT NULL AND spent > 0
), limited AS (
    -- Whoever has the same account would meet the same limit.
    INSERT INTO account_limits AS a (workspace, account, until, task)
    SELECT DISTINCT ON (m.workspace, c.account) m.workspace, c.account, m.not_before, m.id FROM moved m JOIN classes c ON c.id = m.class
    WHERE m.outcome = 'parked' AND m.state IN ('queued', 'paused', 'awaiting_input') AND c.account <> '' ORDER BY m.workspace, c.account, m.not_before DESC
    ON CONFLICT (workspace, account) DO UPDATE SET until = greatest(a.until, excluded.until), since = CASE WHEN excluded.until > a.until THEN excluded.since ELSE a.since END, task = excluded.task
), session AS (
    UPDATE sessions s SET state = 'retired', ended_at = clock_timestamp() FROM moved m WHERE m.command IS NOT NULL AND s.task = m.id AND s.attempt = m.attempt
), estimated AS (
    DELETE FROM overruns o USING moved m WHERE m.command IS NOT NULL AND o.task = m.id AND o.attempt = m.attempt
), audited AS (
    INSERT INTO audit (workspace, actor, action, object, code, why, tasks)
    SELECT workspace, $11, 'task.' || state, (CASE count(*) WHEN 1 THEN (array_agg(id))[1] ELSE claim END)::text, reason,
        CASE count(*) WHEN 1 THEN 'attempt ' || min(attempt) || ' ' || outcome ELSE outcome END, array_agg(id)
    FROM moved GROUP BY workspace, claim, state, reason, outcome
),
-- include: tally

-- Notes and counts tasks that moved to a terminal state, and notes that their agents did.
-- name: tally
ended AS (
    INSERT INTO ended (task, workspace, lane, phase, state, at) SELECT id, workspace, lane, phase, state::text, ended_at FROM moved WHERE is_terminal(state)
), tally AS (
    INSERT INTO tallies (workspace, lane, what, n) SELECT workspace, lane, state::text, count(*) FROM moved WHERE is_terminal(state) GROUP BY 1, 2, 3
), over AS (
    UPDATE agents a SET over = true FROM moved m WHERE m.conn IS NOT NULL AND is_terminal(m.state) AND a.id = m.id
)

-- name: moved_columns
    id::text, state, reason, attempt, coalesce(conn::text, ''), coalesce(command::text, ''), command_digest, epoch,
    is_asked(reason),
    CASE WHEN reason = 'operator' THEN (SELECT format('(%s): %s', k.actor, k.reason) FROM kills AS k (asker) WHERE k.task = id AND k.asker = conn AND k.actor <> '' ORDER BY k.cancel <> '', k.requested_at + k.grace, k.requested_at LIMIT 1) END,
    CASE WHEN is_asked(reason) THEN coalesce((SELECT CASE WHEN k.actor = '' THEN k.command::text END FROM kills AS k (asker) WHERE k.task = id AND k.asker = conn ORDER BY k.cancel <> '', k.requested_at + k.grace, k.requested_at LIMIT 1), '') ELSE '' END,
    started_at, CASE WHEN state = 'queued' THEN not_before END

-- name: ended_tasks
SELECT 1,
-- include: moved_columns
    , ended_at FROM tasks WHERE id = ANY ($1::uuid[])

-- name: move_waiting
WITH moved AS (
    UPDATE tasks SET state = $3, reason = $4, epoch = epoch + 1, last_error = CASE WHEN $3::task_state <> 'completed' THEN last_error END, updated_at = clock_timestamp(), ended_at = CASE WHEN is_terminal($3) THEN clock_timestamp() END
    WHERE id = $1 AND state = $2 AND epoch = $5 RETURNING id, workspace, lane, phase, state, conn, ended_at
),
-- include: tally
SELECT FROM moved

-- name: cancel_waiting
WITH moved AS (
    UPDATE tasks SET state = 'cancelled', reason = $2, epoch = epoch + 1, ended_at = clock_timestamp(), updated_at = clock_timestamp()
    WHERE id = ANY ($1::uuid[]) AND state = ANY ($4::text[]::task_state[]) RETURNING id, workspace, lane, phase, state, conn, ended_at
), audited AS (
    INSERT INTO audit (workspace, actor, action, object, code) SELECT workspace, $3, 'task.cancelled', id::text, $2 FROM moved
),
-- include: tally
SELECT id::text FROM moved

-- name: fail_waiting
WITH moved AS (
    UPDATE tasks SET state = 'failed', reason = $3, epoch = epoch + 1, ended_at = clock_timestamp(), updated_at = clock_timestamp()
    FROM unnest($1::uuid[], $2::text[]) AS f (task, why) WHERE id = f.task AND NOT is_terminal(state) RETURNING id, workspace, lane, phase, state, conn, ended_at, f.why
), audited AS (
    INSERT INTO audit (workspace, actor, action, object, code, why) SELECT workspace, 'self', 'task.failed', id::text, $3, why FROM moved
),
-- include: tally
SELECT id::text FROM moved

-- Those whose last moment to be started has passed, held.
-- name: late_waiting
WITH claimable AS MATERIALIZED (
    SELECT t.id FROM ready r JOIN tasks t ON t.id = r.task WHERE r.expires_at < 'infinity' AND r.expires_at <= statement_timestamp() ORDER BY r.expires_at LIMIT $1 FOR NO KEY UPDATE OF t SKIP LOCKED FOR UPDATE OF r SKIP LOCKED
), aside AS MATERIALIZED (
    SELECT t.id FROM parked p JOIN tasks t ON t.id = p.task WHERE p.expires_at < 'infinity' AND p.expires_at <= statement_timestamp() ORDER BY p.expires_at LIMIT $1 FOR NO KEY UPDATE OF t SKIP LOCKED FOR UPDATE OF p SKIP LOCKED
)
SELECT id::text FROM claimable UNION ALL SELECT id::text FROM aside

-- name: expire_waiting
WITH late AS (
    DELETE FROM ready USING (SELECT r.ctid
-- include: places_ready
    ) AS r OFFSET 0) AS place WHERE ready.ctid = place.ctid RETURNING ready.task, ready.workspace, ready.lane, 'ready' AS what
), aside AS (
    DELETE FROM parked USING (SELECT p.ctid FROM
-- include: one_by_one
        , LATERAL (SELECT ctid FROM parked WHERE task = u.id AND expires_at < 'infinity' OFFSET 0) AS p OFFSET 0) AS place WHERE parked.ctid = place.ctid RETURNING parked.task, parked.workspace, parked.lane, parked.why
), gone AS (
    SELECT * FROM late UNION ALL SELECT * FROM aside
), moved AS (
    UPDATE tasks SET state = 'expired', reason = 'command_expired', epoch = epoch + 1, ended_at = clock_timestamp(), updated_at = clock_timestamp()
    WHERE id = ANY (ARRAY (SELECT task FROM gone)) AND state = 'queued' AND attempt = 0 RETURNING id, workspace, lane, phase, state, conn, ended_at
), left_places AS (
    INSERT INTO tallies (workspace, lane, what, n) SELECT workspace, lane, what, -count(*) FROM gone GROUP BY 1, 2, 3
), audited AS (
    INSERT INTO audit (workspace, actor, action, object, code) SELECT workspace, 'self', 'task.expired', id::text, 'command_expired' FROM moved
),
-- include: tally
SELECT id::text FROM moved

-- name: take_over
UPDATE leases SET epoch = $3 WHERE task = $1 AND attempt = $2 AND epoch = $3 - 1

-- The attempt that it ended with goes to the others.
-- name: retry
WITH was AS MATERIALIZED (
    SELECT * FROM tasks WHERE id = $1 AND state = $2 AND replays < $3 AND NOT (on_failed_dep = 'cancel' AND waiting_reason(id) = 'dependency_failed') FOR NO KEY UPDATE
), moved AS (
    UPDATE tasks t SET state = 'queued', reason = waiting_reason(t.id), next_type = 'replay', replays = t.replays + 1, epoch = t.epoch + 1, ended_at = NULL, updated_at = clock_timestamp(),
        not_before = CASE WHEN $4::interval > interval '0' THEN now() + $4::interval END,
        last_type = NULL, last_owner = NULL, last_claim = NULL, last_claimed_at = NULL, last_started_at = NULL, last_outcome = NULL, last_exit = NULL
    FROM was WHERE t.id = was.id RETURNING t.lane
), kept AS (
    INSERT INTO ended_attempts (task, number, workspace, epoch, type, owner, claim, claimed_at, started_at, ended_at, outcome, exit)
    SELECT id, attempt, workspace, epoch, last_type, last_owner, last_claim, last_claimed_at, last_started_at, ended_at, last_outcome, last_exit FROM was WHERE last_outcome IS NOT NULL
), again AS (
    DELETE FROM ended e USING was WHERE e.workspace = was.workspace AND e.state = was.state::text AND e.archived IN (false, true) AND e.task = was.id
)
INSERT INTO tallies (workspace, lane, what, n) SELECT $5, lane, $2::task_state::text, -1 FROM moved
