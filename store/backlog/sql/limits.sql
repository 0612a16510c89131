-- What limits what may be claimed: budgets, quotas, lanes, freezes.
--
-- The parts expect the workspace in $1, the claimer whose own limits count in $2
-- ('' for nobody), and a class under the name c.

-- The limits of the workspace and the room in each: in millionths for budgets, in
-- tasks for quotas. advance is the part of the room that is advanced to slots.

-- name: budget_rooms
        SELECT 'budget' AS what, b.id, b.workspace, b.name, b.scope, b.target, b.dimension, b.hard - s.held AS room, s.advance
        FROM budgets b, LATERAL (SELECT coalesce(sum(used + reserved), 0)::bigint AS held, coalesce(sum(advance), 0)::bigint AS advance FROM budget_slots WHERE budget = b.id) AS s
        WHERE b.workspace IN ('', $1)

-- name: quota_rooms
        SELECT 'quota', q.id, q.workspace, q.name, q.scope, q.target, '', least(
            q.concurrent - (SELECT count(*) FROM quota_uses u JOIN leases l ON l.task = u.task AND l.attempt = u.attempt WHERE u.quota = q.id),
            q.per_window - (SELECT count(*) FROM quota_uses u WHERE u.quota = q.id AND u.at > now() - q.win)), 0
        FROM quotas q WHERE q.workspace IN ('', $1)

-- name: with_budgets
    WITH limits AS MATERIALIZED (
-- include: budget_rooms
    )

-- name: with_limits
    WITH limits AS MATERIALIZED (
-- include: budget_rooms
        UNION ALL
-- include: quota_rooms
    )

-- What one task of class c takes of each limit that binds it.
-- name: bindings
        SELECT x.what, x.id, x.name, x.room, CASE x.what WHEN 'quota' THEN 1 ELSE takes(c.estimate, x.dimension) END AS amount
        FROM limits x WHERE scope_fits(x.scope, x.target, c.lane, c.account, c.conn, c.only_task, $2)

-- name: frozen
        EXISTS (SELECT FROM freezes f WHERE f.workspace IN ('', c.workspace) AND scope_fits(f.scope, f.target, c.lane, c.account, c.conn, c.only_task, $2))

-- Holds the slots that a claim under quotas may touch: those with advances, which it
-- takes back, and its own.
-- name: hold_slots
SELECT FROM budget_slots
WHERE budget IN (SELECT id FROM budgets WHERE workspace IN ('', $1)) AND (advance <> 0 OR slot = budget_slot()) ORDER BY budget, slot FOR UPDATE

-- name: recall_all
SELECT recall_advances(id) FROM budgets b
WHERE workspace IN ('', $1) AND EXISTS (SELECT FROM budget_slots WHERE budget = b.id AND advance <> 0) ORDER BY id

-- Refuses new tasks of classes $1. $2 is empty: new tasks have no claimer yet.
-- name: refuse_new_work
SELECT refuse_new_work(x.lane, x.state, x.budget) FROM (
    SELECT c.lane, coalesce((SELECT state FROM lanes l WHERE l.workspace = c.workspace AND l.name = c.lane), 'active') AS state,
        coalesce((SELECT b.name FROM funds b WHERE b.workspace IN ('', c.workspace) AND b.on_hard = 'refuse'
            AND b.used + b.reserved + greatest(1, takes(c.estimate, b.dimension)) > b.hard
            AND scope_fits(b.scope, b.target, c.lane, c.account, c.conn, c.only_task, $2) LIMIT 1), '') AS budget
    FROM classes c WHERE c.id = ANY ($1) AND $2 = ''
) AS x WHERE x.state IN ('draining', 'disabled') OR x.budget <> '' LIMIT 1

-- The classes that a budget has no room for come first: as a rule there are none,
-- and there may be many classes with ready tasks.
-- name: tasks_of_spent_budgets
WITH rooms AS MATERIALIZED (
    SELECT workspace, scope, target, dimension, on_hard, downgrade_to, hard - used - reserved AS room FROM funds WHERE on_hard IN ('cancel', 'downgrade') AND $2 = ''
), spent AS MATERIALIZED (
    SELECT c.id AS class, b.on_hard, b.downgrade_to
    FROM rooms b JOIN classes c ON b.workspace IN ('', c.workspace) AND scope_fits(b.scope, b.target, c.lane, c.account, c.conn, c.only_task, $2)
    WHERE b.room < greatest(1, coalesce((c.estimate->>b.dimension)::bigint, 0)) AND c.lane <> b.downgrade_to
)
SELECT r.task::text, s.on_hard, s.downgrade_to FROM spent s, LATERAL (SELECT task FROM ready WHERE class = s.class LIMIT $1) AS r LIMIT $1

-- name: set_budget
INSERT INTO budgets AS b (workspace, name, scope, target, dimension, hard, soft, on_hard, downgrade_to, rolling, resets_at, every)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, nullif($10::interval, interval '0'), $11, nullif($12::interval, interval '0'))
ON CONFLICT (workspace, name) DO UPDATE SET hard = excluded.hard, soft = excluded.soft, on_hard = excluded.on_hard, downgrade_to = excluded.downgrade_to,
    rolling = excluded.rolling, resets_at = excluded.resets_at, every = excluded.every, soft_since = NULL
WHERE (b.scope, b.target, b.dimension, b.rolling IS NULL) = (excluded.scope, excluded.target, excluded.dimension, excluded.rolling IS NULL)

-- name: class_of_its_own
UPDATE tasks t SET class = intern_class(c.workspace, c.lane, c.kind, c.capabilities, c.account, c.conn, t.id, c.estimate), updated_at = clock_timestamp()
FROM classes c WHERE t.id = $1 AND c.id = t.class AND t.state = $2

-- name: remove_budget
WITH gone AS (DELETE FROM budgets WHERE workspace = $1 AND name = $2 RETURNING id), sums AS (DELETE FROM budget_slots WHERE budget IN (SELECT id FROM gone))
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
        SELECT b.id FROM leases l, jsonb_each_text(l.reserved) AS r JOIN budgets b ON b.id = r.key::int JOIN jsonb_each_text($2) AS u ON u.key = b.dimension
        WHERE l.task = $1 AND u.value::bigint > r.value::bigint

-- Holds what a report of usage, and the end of the attempt behind it, may touch: the
-- budgets that are exceeded, then the slots.
-- name: hold_exceeded
SELECT FROM budgets WHERE id IN (
-- include: exceeded
    ) ORDER BY id FOR NO KEY UPDATE

-- name: hold_slots_of_usage
SELECT FROM budget_slots WHERE budget IN (SELECT r.key::int FROM leases l, jsonb_each_text(l.reserved) AS r WHERE l.task = $1) AND (slot = budget_slot() OR advance <> 0 AND budget IN (
-- include: exceeded
    )) ORDER BY budget, slot FOR UPDATE

-- name: recall_for_usage
SELECT recall_advances(id) FROM (
-- include: exceeded
    ) AS b ORDER BY id

-- name: settle_usage
WITH u AS (
    SELECT key AS dimension, value::bigint AS amount FROM jsonb_each_text($2)
), due AS MATERIALIZED (
    SELECT b.id, b.workspace, b.rolling, u.amount, least(u.amount, r.value::bigint) AS freed, r.value::bigint - least(u.amount, r.value::bigint) AS rest
    FROM leases l, jsonb_each_text(l.reserved) AS r JOIN budgets b ON b.id = r.key::int JOIN u ON u.dimension = b.dimension WHERE l.task = $1 ORDER BY b.id
), settled AS (
    INSERT INTO budget_slots AS s (budget, slot, workspace, used, reserved) SELECT d.id, budget_slot(), d.workspace, d.amount, -d.freed FROM due d
    ON CONFLICT (budget, slot) DO UPDATE SET used = s.used + excluded.used, reserved = s.reserved + excluded.reserved
), charged AS (
    INSERT INTO charges (budget, workspace, amount) SELECT id, workspace, amount FROM due WHERE rolling IS NOT NULL AND amount > 0
)
UPDATE leases SET reserved = reserved || coalesce((SELECT jsonb_object_agg(id, rest) FROM due), '{}'),
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
