-- name: verify_grant
SELECT secret, $2 <= clock_timestamp(),
    EXISTS (SELECT FROM leases l WHERE l.task = $3 AND l.attempt = $4 AND l.epoch = $5)
FROM grant_keys WHERE kid = $1 AND verifies_until > clock_timestamp()

-- Holds the leases of tasks, and says which there are. They come before the tasks.
-- name: hold_leases
SELECT task::text FROM leases WHERE task = ANY ($1::uuid[]) ORDER BY task FOR UPDATE

-- name: renew_leases
UPDATE leases l SET until = n.until, sweep_at = least(l.sweep_at, n.until), renewed_at = clock_timestamp()
FROM (SELECT * FROM unnest($1::uuid[], $2::bigint[]) AS u (task, epoch) ORDER BY task) AS f, (SELECT clock_timestamp() + $3::interval AS until) AS n
WHERE l.task = f.task AND l.epoch = f.epoch
RETURNING l.task::text, l.attempt, l.epoch

-- An agent's lease is renewed by the spoke that runs it.
-- name: renew_lease
UPDATE leases l SET until = n.until, sweep_at = least(l.sweep_at, n.until), renewed_at = clock_timestamp() FROM (SELECT clock_timestamp() + $4::interval AS until) AS n
WHERE l.task = $1 AND l.attempt = $2 AND l.epoch = $3 AND EXISTS (SELECT FROM tasks t JOIN classes c ON c.id = t.class WHERE t.id = l.task AND c.kind <> 'agent') RETURNING l.until

-- Leases that were renewed since are looked at again when they would run out now.
-- name: look_later
UPDATE leases SET sweep_at = until WHERE task = ANY (ARRAY (
    SELECT task FROM leases WHERE sweep_at <= statement_timestamp() AND until > statement_timestamp() ORDER BY sweep_at LIMIT $1 FOR UPDATE SKIP LOCKED))

-- Leases that have run out, held unless somebody else has them. Not the ones of the
-- instance's own spoke, $1.
-- name: hold_lapsed
SELECT task::text, attempt, epoch FROM leases
WHERE sweep_at <= statement_timestamp() AND until <= statement_timestamp() AND owner <> $1 ORDER BY sweep_at LIMIT $2 FOR UPDATE SKIP LOCKED

-- After a restore an attempt that has not started as far as is known may have, and so may one that was claimed since: its directory was there.
-- Of what they were ordered it has the little that following them takes. Not those of $2 with the numbers $3; the first $5 of tasks above $4.
-- name: open_attempts
SELECT l.task::text, l.attempt, l.epoch, l.owner, l.started_at IS NOT NULL,
    l.forgot OR l.started_at IS NULL AND (SELECT era > 0 FROM audit_tree), coalesce(s.boot_id, ''), coalesce(s.shim_pid, 0), coalesce(s.shim_start, 0), coalesce(s.cgroup, ''), clock_timestamp() - l.claimed_at - l.stood - CASE WHEN l.paused AND l.paused_at IS NOT NULL THEN clock_timestamp() - l.paused_at ELSE '0' END, l.renewed_at,
    coalesce(t.command::text, ''), coalesce(encode(t.command_digest, 'hex'), ''), coalesce(t.conn::text, ''),
    coalesce(o.runtime, ''), coalesce(o.timeout_ms, 0), coalesce(o.estimate_ms, 0), coalesce(o.trace, '')
FROM leases l JOIN tasks t ON t.id = l.task JOIN task_bodies b ON b.task = l.task
LEFT JOIN sessions s ON s.task = l.task AND s.attempt = l.attempt, jsonb_to_record(b.spec) AS o (runtime text, timeout_ms bigint, estimate_ms bigint, trace text)
WHERE l.owner = $1 AND b.spec IS NOT NULL AND (l.task, l.attempt) NOT IN (SELECT * FROM unnest($2::uuid[], $3::int[]))
    AND l.task > coalesce(nullif($4::text, ''), '00000000-0000-0000-0000-000000000000')::uuid ORDER BY l.task LIMIT $5

-- name: order_of
SELECT spec FROM task_bodies WHERE task = $1

-- Of leases that are held. An agent was executed when its supervisor says, $11 in µs since 1970, 0 where nothing says so: no earlier than its claim
-- and no later than now.
-- name: mark_started
WITH f AS (
    SELECT * FROM unnest($1::uuid[], $2::int[], $3::bigint[], $4::int[], $5::text[], $6::int[], $7::bigint[], $8::text[], $9::bigint[], $10::bigint[], $11::bigint[]) WITH ORDINALITY AS u (task, attempt, epoch, pid, boot, shim, start, cgroup, overruns, patience, at, n) ORDER BY task
), moved AS (
    SELECT t.id, t.workspace, l.attempt, t.conn, t.command, t.command_digest, l.epoch, f.pid, f.boot, f.shim, f.start, f.cgroup, f.overruns, f.patience, f.n, l.started_at IS NULL AS fresh,
        least(clock_timestamp(), greatest(l.claimed_at, CASE WHEN f.at > 0 THEN timestamptz 'epoch' + f.at * interval '1 microsecond' ELSE 'infinity' END)) AS began
    FROM f JOIN leases l ON l.task = f.task AND l.attempt = f.attempt AND l.epoch = f.epoch JOIN tasks t ON t.id = l.task
), begun AS (
    UPDATE leases l SET started_at = m.began FROM moved m WHERE m.fresh AND l.task = m.id
), session AS (
    INSERT INTO sessions (task, attempt, pid, boot_id, shim_pid, shim_start, cgroup, state) SELECT id, attempt, pid, boot, shim, start, cgroup, 'online' FROM moved WHERE fresh ON CONFLICT DO NOTHING
), estimated AS (
    INSERT INTO overruns AS o (task, attempt, workspace, due, patience)
    SELECT id, attempt, workspace, began + overruns * interval '1 millisecond', patience * interval '1 millisecond' FROM moved WHERE fresh AND overruns > 0
    ON CONFLICT (task) DO UPDATE SET attempt = excluded.attempt, due = excluded.due, patience = excluded.patience, warned_at = NULL, over_at = NULL
), audited AS (
    INSERT INTO audit (workspace, actor, action, object) SELECT workspace, 'self', 'task.running', id::text FROM moved WHERE fresh
)
SELECT n, fresh, id::text, attempt, epoch, coalesce(conn::text, ''), coalesce(command::text, ''), command_digest,
    floor(extract(epoch FROM began) * 1000)::bigint FROM moved ORDER BY n
