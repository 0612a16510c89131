-- Agents as their host sees them: the columns of a hub's mirror, and the hub.

-- name: agent_rows
SELECT t.id::text, '', t.conn::text, c.state, t.title, t.priority, t.state, t.reason, NULL::jsonb, NULL::jsonb, t.attempt, c.peer_name, '', coalesce(x.spec->>'retry_of', ''), '', t.command::text, x.spec - 'sealed', NULL::jsonb, x.result,
    (SELECT jsonb_strip_nulls(jsonb_build_object('reason', k.reason, 'by', coalesce(nullif(k.actor, ''), c.peer_name), 'cancel', nullif(k.cancel, ''))) FROM kills k WHERE k.task = t.id AND k.conn = t.conn
        ORDER BY k.command::text IS DISTINCT FROM x.result->>'kill', k.cancel <> '', k.requested_at + k.grace, k.requested_at LIMIT 1), NULL::jsonb,
    (SELECT jsonb_strip_nulls(jsonb_build_object('number', p.number, 'paused', p.paused, 'reason', nullif(p.reason, ''), 'by', CASE p.actor WHEN c.peer THEN c.peer_name ELSE p.actor END, 'at', p.at, 'state', 'taken')) FROM pauses p WHERE p.task = t.id AND p.conn = t.conn),
    x.review || '{"state": "taken"}',
    '', coalesce(x.result->>'isolation', ''), t.expires_at, t.created_at, t.updated_at,
    CASE WHEN t.attempt > 1 OR t.retries + t.reclaims > 0 THEN (SELECT jsonb_agg(jsonb_build_object('task', e.task, 'attempt', e.number, 'outcome', e.outcome, 'state', 'queued',
        'reason', CASE e.outcome WHEN 'interrupted' THEN 'executor_died' WHEN 'parked' THEN 'limit' WHEN 'failed' THEN coalesce(e.exit #>> '{breach,limit}', e.exit->>'why', '') ELSE '' END, 'exit', coalesce(e.exit, '{"code": -1}'), 'at', floor(extract(epoch FROM e.ended_at) * 1000)::bigint,
        'next', CASE WHEN e.number = t.attempt AND t.state = 'queued' THEN coalesce(floor(extract(epoch FROM t.not_before) * 1000)::bigint, 0) ELSE 0 END) ORDER BY e.number)
        FROM ended_attempts e WHERE e.task = t.id) END,
    t.created_at, t.started_at, t.ended_at, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz, false, c.peer_name
FROM agents a JOIN standing t ON t.id = a.id JOIN connections c ON c.id = a.conn JOIN task_bodies x ON x.task = t.id

-- name: agents_newest
WITH page AS MATERIALIZED (
    SELECT n.id FROM connections k, LATERAL (SELECT id FROM agents WHERE conn = k.id AND id < coalesce($3::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff') ORDER BY id DESC LIMIT $2) AS n
    WHERE $1 = '' OR k.peer_name = $1 ORDER BY n.id DESC LIMIT $2
)
-- include: agent_rows
JOIN page ON page.id = a.id ORDER BY a.id DESC

-- name: agents_open
WITH page AS MATERIALIZED (
    SELECT n.id FROM connections k, LATERAL (SELECT id FROM agents WHERE conn = k.id AND NOT over AND id < coalesce($3::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff') ORDER BY id DESC LIMIT $2) AS n
    WHERE $1 = '' OR k.peer_name = $1 ORDER BY n.id DESC LIMIT $2
)
-- include: agent_rows
JOIN page ON page.id = a.id ORDER BY a.id DESC

-- name: agents_by_id
-- include: agent_rows
WHERE a.id BETWEEN $1::text::uuid AND $2::text::uuid ORDER BY a.id DESC LIMIT 20

-- In the order of the index of short ids: in any other one a planner that takes them for frequent walks another index until it has found some.
-- name: agents_by_short_id
WITH page AS MATERIALIZED (
    SELECT id FROM tasks WHERE short BETWEEN decode($1, 'hex') AND decode($2, 'hex') ORDER BY short LIMIT 200
)
-- include: agent_rows
JOIN page ON page.id = a.id ORDER BY a.id DESC LIMIT 20

-- name: kill_here
INSERT INTO kills (conn, actor, command, digest, task, reason, grace, cancel, exp, tombstone)
SELECT conn, $2, $3, '', id, $4, $5, $6, clock_timestamp() + interval '7 days', false FROM tasks WHERE id = $1
