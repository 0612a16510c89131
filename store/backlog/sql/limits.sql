-- Budgets, quotas and lanes. What they let through, and what binds a class, says the
-- schema's second part, store/migrations/00002_admission.sql.

-- The tasks that a budget has no room for and is not to keep. The classes come first: as
-- a rule there are none, and there may be many with ready tasks.
-- name: tasks_of_spent_budgets
WITH spent AS MATERIALIZED (
    SELECT c.workspace, c.id AS class, b.on_hard, b.downgrade_to, l.dimension, l.room
    FROM budgets b JOIN limits l ON l.what = 'budget' AND l.id = b.id JOIN classes c ON b.workspace IN ('', c.workspace) AND scope_fits(b.scope, b.target, c.lane, c.account, c.conn, c.only_task, '')
    WHERE b.on_hard IN ('cancel', 'downgrade') AND c.lane <> b.downgrade_to AND l.room < greatest(1, takes_most(c.sizes, l.dimension))
)
SELECT r.task::text, s.on_hard, s.downgrade_to FROM spent s, LATERAL (
    SELECT task FROM ready WHERE workspace = s.workspace AND class = s.class AND s.room < greatest(1, takes(estimate, s.dimension)) LIMIT $1) AS r LIMIT $1

-- name: set_budget
INSERT INTO budgets AS b (workspace, name, scope, target, dimension, hard, soft, on_hard, downgrade_to, rolling, resets_at, every)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, nullif($10::interval, interval '0'), $11, nullif($12::interval, interval '0'))
ON CONFLICT (workspace, name) DO UPDATE SET hard = excluded.hard, soft = excluded.soft, on_hard = excluded.on_hard, downgrade_to = excluded.downgrade_to,
    rolling = excluded.rolling, resets_at = excluded.resets_at, every = excluded.every, soft_since = NULL
WHERE (b.scope, b.target, b.dimension, b.rolling IS NULL) = (excluded.scope, excluded.target, excluded.dimension, excluded.rolling IS NULL)

-- name: class_of_its_own
UPDATE tasks t SET class = intern_class(c.workspace, c.lane, c.kind, c.capabilities, c.account, c.conn, t.id, c.sizes), updated_at = clock_timestamp()
FROM classes c WHERE t.id = $1 AND c.id = t.class AND t.state = $2

-- name: remove_budget
WITH gone AS (DELETE FROM budgets WHERE workspace = $1 AND name = $2 RETURNING id), sums AS (DELETE FROM budget_shards WHERE budget IN (SELECT id FROM gone))
SELECT FROM gone

-- name: note_usage
WITH l AS (
    SELECT task, attempt FROM leases WHERE task = $1 AND attempt = $2 AND epoch = $3 FOR UPDATE
), r AS (
    INSERT INTO usage_reports (workspace, task, attempt, key, usage) SELECT $4, task, attempt, $5, $6 FROM l ON CONFLICT DO NOTHING RETURNING task
)
SELECT EXISTS (SELECT FROM l), EXISTS (SELECT FROM r)

-- The budgets of which the attempt of task $1 has used more, $2, than it reserved.
-- name: exceeded
        SELECT b.id FROM leases l JOIN budgets b ON b.id = ANY (l.budgets) JOIN jsonb_each_text($2) AS u ON u.key = b.dimension
        WHERE l.task = $1 AND u.value::bigint > takes(l.reserved, b.dimension)

-- Holds what a report of usage, and the end of the attempt behind it, may touch: the
-- budgets that are exceeded, then the shards.
-- name: hold_exceeded
SELECT FROM budgets WHERE id IN (
-- include: exceeded
    ) ORDER BY id FOR NO KEY UPDATE

-- name: hold_shards_of_usage
SELECT FROM budget_shards WHERE budget = ANY (ARRAY (SELECT unnest(budgets) FROM leases WHERE task = $1)) AND (shard = budget_shard() OR escrow <> 0 AND budget IN (
-- include: exceeded
    )) ORDER BY budget, shard FOR UPDATE

-- name: recall_for_usage
SELECT recall_escrow(id) FROM (
-- include: exceeded
    ) AS b ORDER BY id

-- name: settle_usage
WITH u AS (
    SELECT key AS dimension, value::bigint AS amount FROM jsonb_each_text($2)
), due AS MATERIALIZED (
    SELECT b.id, b.workspace, b.dimension, b.rolling, u.amount, least(u.amount, takes(l.reserved, b.dimension)) AS freed, greatest(0, takes(l.reserved, b.dimension) - u.amount) AS rest
    FROM leases l JOIN budgets b ON b.id = ANY (l.budgets) JOIN u ON u.dimension = b.dimension WHERE l.task = $1 ORDER BY b.id
), settled AS (
    INSERT INTO budget_shards AS s (budget, shard, workspace, used, reserved) SELECT d.id, budget_shard(), d.workspace, d.amount, -d.freed FROM due d
    ON CONFLICT (budget, shard) DO UPDATE SET used = s.used + excluded.used, reserved = s.reserved + excluded.reserved
), charged AS (
    INSERT INTO charges (budget, workspace, amount) SELECT id, workspace, amount FROM due WHERE rolling IS NOT NULL AND amount > 0
)
UPDATE leases SET reserved = coalesce(reserved, '{}') || coalesce((SELECT jsonb_object_agg(dimension, rest) FROM due), '{}'),
    used = coalesce(used, '{}') || (SELECT jsonb_object_agg(dimension, amount + coalesce((used->>dimension)::bigint, 0)) FROM u)
WHERE task = $1

-- name: set_lane
INSERT INTO lanes AS l (workspace, name, state, weight, reason, actor) VALUES ($1, $2, coalesce(nullif($3, ''), 'active'), coalesce(nullif($4, 0), 1), $5, $6)
ON CONFLICT (workspace, name) DO UPDATE SET state = coalesce(nullif($3, ''), l.state), weight = coalesce(nullif($4, 0), l.weight),
    reason = CASE $3 WHEN '' THEN l.reason ELSE $5 END, actor = $6, since = CASE WHEN $3 IN ('', l.state) THEN l.since ELSE clock_timestamp() END

-- name: list_lanes
WITH open AS (
    SELECT lane, sum(n) AS queued, 0 AS claimed FROM counted WHERE workspace = $1 AND what IN ('ready', 'due', 'deps') GROUP BY 1
    UNION ALL SELECT lane, 0, count(*) FROM leases WHERE workspace = $1 GROUP BY 1
), sums AS (
    SELECT lane, sum(queued)::bigint AS queued, sum(claimed)::bigint AS claimed FROM open GROUP BY lane HAVING sum(queued) + sum(claimed) > 0
)
SELECT coalesce(l.name, s.lane), coalesce(l.state, 'active'), coalesce(l.weight, 1), coalesce(l.reason, ''), coalesce(l.actor, ''), l.since,
    coalesce(s.queued, 0), coalesce(s.claimed, 0)
FROM (SELECT * FROM lanes WHERE workspace = $1) AS l FULL JOIN sums s ON s.lane = l.name ORDER BY 1

-- name: set_quota
INSERT INTO quotas AS q (workspace, name, scope, target, concurrent, per_window, win) VALUES ($1, $2, $3, $4, $5, $6, nullif($7::interval, interval '0'))
ON CONFLICT (workspace, name) DO UPDATE SET concurrent = excluded.concurrent, per_window = excluded.per_window, win = excluded.win
WHERE (q.scope, q.target) = (excluded.scope, excluded.target)

-- name: list_quotas
SELECT name, scope, target, concurrent, per_window, coalesce(win, interval '0'),
    (SELECT count(*) FROM quota_uses u JOIN leases l ON l.task = u.task AND l.attempt = u.attempt WHERE u.quota = q.id),
    (SELECT count(*) FROM quota_uses u WHERE u.quota = q.id AND u.at > now() - q.win)
FROM quotas q WHERE workspace IN ('', $1) ORDER BY workspace, name

-- name: list_budgets
SELECT
-- include: budget_columns
FROM funds WHERE workspace IN ('', $1) ORDER BY workspace, name

-- name: read_budget
SELECT
-- include: budget_columns
FROM funds WHERE id = $1

-- name: budget_columns
    name, scope, target, dimension, hard, soft, on_hard, downgrade_to, coalesce(rolling, interval '0'), resets_at, coalesce(every, interval '0'),
    used, reserved, hard - used - reserved, soft_since
