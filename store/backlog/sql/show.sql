-- What people see of tasks. Parameters of all that ends in task_rows: $1 the
-- workspace, $2 '' (the claimer whose own limits count: nobody's), then its own.

-- The one place that says whether task t of class c can be claimed now by
-- somebody.
-- name: eligibility
    CASE WHEN t.state <> 'queued' THEN '' WHEN t.unmet > 0 THEN 'waiting_deps' WHEN t.not_before > now() THEN 'not_before'
    WHEN NOT may_start(c.conn) THEN 'held'
    WHEN
-- include: frozen
    THEN 'frozen'
    WHEN EXISTS (SELECT FROM lanes n WHERE n.workspace = c.workspace AND n.name = c.lane AND n.state IN ('paused', 'disabled')) THEN 'lane_paused'
    ELSE coalesce((SELECT CASE x.what WHEN 'quota' THEN 'rate_limited' ELSE 'over_budget' END FROM (
-- include: bindings
        ) AS x WHERE x.room <= 0 OR x.amount > x.room ORDER BY x.what DESC LIMIT 1),
        CASE WHEN c.account <> '' AND NOT EXISTS (SELECT FROM budgets b WHERE b.workspace = c.workspace AND b.scope = 'account' AND b.target = c.account)
            THEN 'over_budget' ELSE 'ready' END)
    END

-- name: task_rows
SELECT t.id::text, coalesce(t.key, ''), t.title, coalesce(x.body, ''), t.phase, t.priority, t.state, t.reason, c.kind, c.lane, c.capabilities, c.account,
    c.estimate, t.unmet, t.on_failed_dep, coalesce(l.owner, ''), l.claimed_at, l.until, t.attempt, t.retries, t.max_retries, t.not_before, x.acceptance,
    coalesce(t.idempotency_key, ''), x.result, t.created_by, t.created_at, t.updated_at, t.started_at, t.ended_at, t.epoch, t.conn IS NOT NULL,
    ARRAY (SELECT coalesce(d.key, d.id::text) FROM dependencies e JOIN tasks d ON d.id = e.dependency WHERE e.task = t.id ORDER BY d.seq),
-- include: eligibility
FROM tasks t JOIN classes c ON c.id = t.class LEFT JOIN task_bodies x ON x.task = t.id LEFT JOIN leases l ON l.task = t.id

-- name: task_by_key
-- include: with_limits
-- include: task_rows
WHERE t.workspace = $1 AND t.key = $3

-- name: task_by_id
-- include: with_limits
-- include: task_rows
WHERE t.workspace = $1 AND t.id BETWEEN $3 AND $4 LIMIT 2

-- name: tasks_by_id
-- include: with_limits
-- include: task_rows
JOIN unnest($3::text[]::uuid[]) WITH ORDINALITY AS asked (id, n) ON asked.id = t.id WHERE t.workspace = $1 ORDER BY asked.n

-- Lists of tasks: $3 states, $4 owner, $5 phase, $6 lane, $7 the id before which
-- they are, $8 how many. Each walks the narrowest set that holds all it may show,
-- gathered first where it is small: what is open never costs the history, however
-- long that is.

-- name: list_ready
-- include: with_limits
    , p AS MATERIALIZED (
-- include: set_ready
    ), page AS MATERIALIZED (
-- include: set_page
        ORDER BY pos LIMIT $8
    )
-- include: task_rows
JOIN page ON page.id = t.id ORDER BY pos

-- name: list_held
-- include: with_limits
    , p AS MATERIALIZED (SELECT task AS id, 0 AS pos FROM leases WHERE workspace = $1),
-- include: list_page

-- name: list_parked
-- include: with_limits
    , p AS MATERIALIZED (SELECT task AS id, 0 AS pos FROM parked WHERE workspace = $1),
-- include: list_page

-- name: list_queued
-- include: with_limits
    , p AS MATERIALIZED (
        SELECT task AS id, 0 AS pos FROM due WHERE workspace = $1
        UNION ALL SELECT task, 0 FROM parked WHERE workspace = $1
        UNION ALL SELECT id, 0 FROM (
-- include: set_ready
        ) AS r
    ),
-- include: list_page

-- name: list_phase
-- include: with_limits
    , p AS MATERIALIZED (SELECT id, 0 AS pos FROM tasks WHERE workspace = $1 AND phase = $5 AND phase <> ''),
-- include: list_page

-- name: list_all
-- include: with_limits
    , page AS MATERIALIZED (
        SELECT t.id, 0 AS pos FROM tasks t JOIN classes c ON c.id = t.class LEFT JOIN leases l ON l.task = t.id
-- include: list_filter
        ORDER BY id DESC LIMIT $8
    )
-- include: task_rows
JOIN page ON page.id = t.id ORDER BY t.id DESC

-- name: set_ready
        SELECT r.task AS id, row_number() OVER (ORDER BY r.rank, r.seq) AS pos FROM classes c, LATERAL (
            SELECT task, rank, seq FROM ready WHERE class = c.id ORDER BY rank, seq LIMIT $8
        ) AS r WHERE c.workspace = $1 AND ($6 = '' OR c.lane = $6)

-- name: set_page
        SELECT p.id, p.pos FROM p JOIN tasks t ON t.id = p.id JOIN classes c ON c.id = t.class LEFT JOIN leases l ON l.task = t.id
-- include: list_filter

-- name: list_filter
        WHERE t.workspace = $1 AND $2 = '' AND t.state = ANY ($3::text[]::task_state[]) AND ($4 = '' OR l.owner = $4) AND ($5 = '' OR t.phase = $5)
            AND ($6 = '' OR c.lane = $6) AND ($7 = '' OR t.id < $7::text::uuid)

-- name: list_page
    page AS MATERIALIZED (
-- include: set_page
        ORDER BY id DESC LIMIT $8
    )
-- include: task_rows
JOIN page ON page.id = t.id ORDER BY t.id DESC

-- What is open is counted where it stands, what has ended was tallied when it did.
-- name: count_states
SELECT 'queued', count(*) FROM ready WHERE workspace = $1 UNION ALL SELECT 'queued', count(*) FROM due WHERE workspace = $1
UNION ALL SELECT CASE why WHEN 'deps' THEN 'queued' ELSE why END, count(*) FROM parked WHERE workspace = $1 GROUP BY 1
UNION ALL SELECT t.state::text, count(*) FROM leases l JOIN tasks t ON t.id = l.task WHERE l.workspace = $1 GROUP BY 1
UNION ALL SELECT state::text, sum(n)::bigint FROM tallies WHERE workspace = $1 GROUP BY 1

-- name: count_claimable
SELECT (SELECT count(*) FROM ready WHERE workspace = $1),
    (SELECT min(t.created_at) FROM (
        SELECT (SELECT task FROM ready r WHERE r.class = c.id ORDER BY seq LIMIT 1) AS task FROM classes c WHERE c.workspace = $1
    ) AS o JOIN tasks t ON t.id = o.task),
    (SELECT count(*) FROM leases WHERE workspace = $1 AND until <= now()), now()

-- Why task $1 waits. $2 is '': nobody claims.

-- name: why_frozen
SELECT f.scope, f.target, f.reason, f.actor, f.since FROM tasks t JOIN classes c ON c.id = t.class
JOIN freezes f ON f.workspace IN ('', c.workspace) AND scope_fits(f.scope, f.target, c.lane, c.account, c.conn, c.only_task, $2)
WHERE t.id = $1 AND $2 = '' ORDER BY f.id

-- Of workspace $1, task $3.
-- name: why_limits
-- include: with_limits
SELECT x.what, x.name, x.room, x.amount, (SELECT g.resets_at FROM budgets g WHERE x.what = 'budget' AND g.id = x.id)
FROM tasks t JOIN classes c ON c.id = t.class, LATERAL (
-- include: bindings
) AS x
WHERE t.id = $3 AND $2 = '' AND t.state = 'queued' AND (x.room <= 0 OR x.amount > x.room) ORDER BY x.what DESC, x.name

-- name: why_dependencies
SELECT coalesce(x.key, x.id::text), x.state, x.updated_at FROM dependencies d JOIN tasks x ON x.id = d.dependency
WHERE d.task = $1 AND NOT d.met ORDER BY is_terminal(x.state) DESC, x.seq LIMIT $2

-- name: why_capability
SELECT owner, capabilities, coalesce(lanes, '{}'), seen FROM claimers
WHERE workspace = $1 AND kind = $2 AND capabilities @> $3::text[] AND (lanes IS NULL OR $4 = ANY (lanes)) AND seen > now() - $5::interval ORDER BY seen DESC LIMIT 20
