-- What people see of tasks. Parameters of all that ends in task_rows: $1 the
-- workspace, $2 '' (the claimer whose own limits count: nobody's), then its own.

-- Whether task t can be claimed now by somebody, and else what stands first in its way.
-- name: eligibility
    CASE WHEN t.state <> 'queued' THEN '' WHEN t.unmet > 0 THEN 'waiting_deps' WHEN t.not_before > now() THEN 'not_before' ELSE coalesce((
        SELECT CASE b.what WHEN 'connection' THEN 'held' WHEN 'freeze' THEN 'frozen' WHEN 'lane' THEN 'lane_paused' WHEN 'quota' THEN 'rate_limited' WHEN 'limit' THEN 'account_limited' ELSE 'over_budget' END
        FROM bound b WHERE b.class = t.class AND (b.room <= 0 OR takes(t.estimate, b.dimension) > b.room)
        ORDER BY array_position(ARRAY['connection', 'freeze', 'lane', 'quota', 'limit'], b.what) LIMIT 1), 'ready') END

-- The tasks of page, in the order of pos. Every task has a class; the join is an outer one so that no plan, such as one
-- that was made of empty tables, can begin with the classes and read all of their tasks.
-- name: task_rows
    , bound AS MATERIALIZED (
        SELECT class, what, dimension, room FROM bindings($1, $2, ARRAY (SELECT DISTINCT t.class FROM page JOIN tasks t ON t.id = page.id)) WHERE room <= 0 OR at_most > room
    )
SELECT t.id::text, coalesce(t.key, ''), t.title, coalesce(x.body, ''), t.phase, t.priority, t.state, t.reason, c.kind, c.lane, c.capabilities, c.account,
    t.estimate, t.unmet, t.on_failed_dep, coalesce(t.owner, ''), t.claimed_at, t.until, t.attempt, t.retries, t.max_retries, coalesce((extract(epoch FROM t.backoff) * 1000)::bigint, 0), t.last_error, t.not_before, x.acceptance,
    coalesce(t.idempotency_key, ''), x.result, t.created_by, t.created_at, t.updated_at, t.started_at, t.ended_at, t.epoch, t.conn IS NOT NULL,
    ARRAY (SELECT coalesce(d.key, d.id::text) FROM dependencies e JOIN tasks d ON d.id = e.dependency WHERE e.task = t.id ORDER BY d.seq),
    CASE WHEN is_terminal(t.state) THEN (SELECT e.archived_at FROM ended e WHERE e.workspace = t.workspace AND e.state = t.state::text AND e.archived AND e.task = t.id) END,
-- include: eligibility
FROM page JOIN standing t ON t.id = page.id LEFT JOIN classes c ON c.id = t.class LEFT JOIN task_bodies x ON x.task = t.id
WHERE t.workspace = $1 ORDER BY page.pos

-- name: task_by_key
WITH page AS MATERIALIZED (
    SELECT id, 1 AS pos FROM tasks WHERE workspace = $1 AND key = $3
)
-- include: task_rows

-- name: task_by_id
WITH page AS MATERIALIZED (
    SELECT id, 1 AS pos FROM tasks WHERE workspace = $1 AND id BETWEEN $3 AND $4 LIMIT 20
)
-- include: task_rows

-- name: task_by_short_id
WITH page AS MATERIALIZED (
    SELECT id, 1 AS pos FROM tasks WHERE workspace = $1 AND short BETWEEN decode($3, 'hex') AND decode($4, 'hex') LIMIT 20
)
-- include: task_rows

-- name: tasks_by_id
WITH page AS MATERIALIZED (
    SELECT id, pos FROM unnest($3::text[]::uuid[]) WITH ORDINALITY AS asked (id, pos)
)
-- include: task_rows

-- The first $2 that wait for task $1, by their ids, and how many do, as far as $3.
-- name: blocks
SELECT (array_agg(w.name ORDER BY w.id))[:$2::int], count(*) FROM (
    SELECT t.id, coalesce(t.key, t.id::text) AS name FROM (SELECT task, met FROM dependencies WHERE dependency = $1 ORDER BY task OFFSET 0) AS e JOIN tasks t ON t.id = e.task
    WHERE NOT e.met AND NOT is_terminal(t.state) LIMIT $3) AS w

-- Lists of tasks: $3 states, $4 owner, $5 phase, $6 lane, $7 the id before which
-- they are, $8 how many, $9 whether those that are archived, and no others. Each walks, from the newest on, what holds no task that
-- it may not show, or hardly any: what is open never costs the history, and one
-- lane never another one.

-- The planner would walk a primary key, through ten million tasks, for a state that it
-- believes common and no task has. So these lists have an order that only their indexes
-- have: NULLS LAST, though no id is null; and the state of ended tasks, whose indexes
-- grow at one end as they are, has two bounds in place of a value.
-- name: list_newest
WITH sets AS (
        (SELECT task FROM ready WHERE 'queued' = ANY ($3) AND workspace = $1 AND task < $7::uuid ORDER BY task DESC LIMIT $8)
        UNION ALL (SELECT task FROM due WHERE 'queued' = ANY ($3) AND workspace = $1 AND task < $7::uuid ORDER BY task DESC NULLS LAST LIMIT $8)
        UNION ALL SELECT p.task FROM unnest($3::text[]) AS s, LATERAL (
            SELECT task FROM parked WHERE why = CASE s WHEN 'queued' THEN 'deps' ELSE s END AND workspace = $1 AND task < $7::uuid ORDER BY task DESC NULLS LAST LIMIT $8) AS p
        UNION ALL SELECT e.task FROM unnest($3::text[]) AS s, LATERAL (
            SELECT task FROM ended WHERE workspace = $1 AND (state, archived) >= (s, $9) AND (state, archived, task) < (s, $9, $7::uuid) ORDER BY state DESC, archived DESC, task DESC LIMIT $8) AS e
    )
-- include: list_sets

-- name: list_newest_of_lane
WITH sets AS (
        (SELECT task FROM ready WHERE 'queued' = ANY ($3) AND workspace = $1 AND lane = $6 AND task < $7::uuid ORDER BY task DESC LIMIT $8)
        UNION ALL (SELECT task FROM due WHERE 'queued' = ANY ($3) AND workspace = $1 AND lane = $6 AND task < $7::uuid ORDER BY task DESC NULLS LAST LIMIT $8)
        UNION ALL SELECT p.task FROM unnest($3::text[]) AS s, LATERAL (
            SELECT task FROM parked WHERE why = CASE s WHEN 'queued' THEN 'deps' ELSE s END AND workspace = $1 AND lane = $6 AND task < $7::uuid ORDER BY task DESC NULLS LAST LIMIT $8) AS p
        UNION ALL SELECT e.task FROM unnest($3::text[]) AS s, LATERAL (
            SELECT task FROM ended WHERE workspace = $1 AND lane = $6 AND (state, archived) >= (s, $9) AND (state, archived, task) < (s, $9, $7::uuid) ORDER BY state DESC, archived DESC, task DESC LIMIT $8) AS e
    )
-- include: list_sets

-- name: list_newest_of_phase
WITH sets AS (
        (SELECT task FROM ready WHERE 'queued' = ANY ($3) AND workspace = $1 AND phase = $5 AND phase <> '' AND ($6 = '' OR lane = $6) AND task < $7::uuid ORDER BY task DESC LIMIT $8)
        UNION ALL (SELECT task FROM due WHERE 'queued' = ANY ($3) AND workspace = $1 AND phase = $5 AND phase <> '' AND ($6 = '' OR lane = $6) AND task < $7::uuid ORDER BY task DESC NULLS LAST LIMIT $8)
        UNION ALL SELECT p.task FROM unnest($3::text[]) AS s, LATERAL (
            SELECT task FROM parked WHERE why = CASE s WHEN 'queued' THEN 'deps' ELSE s END AND workspace = $1 AND phase = $5 AND phase <> '' AND ($6 = '' OR lane = $6) AND task < $7::uuid ORDER BY task DESC NULLS LAST LIMIT $8) AS p
        UNION ALL SELECT e.task FROM unnest($3::text[]) AS s, LATERAL (
            SELECT task FROM ended WHERE workspace = $1 AND phase = $5 AND phase <> '' AND ($6 = '' OR lane = $6) AND (state, archived) >= (s, $9) AND (state, archived, task) < (s, $9, $7::uuid) ORDER BY state DESC, archived DESC, task DESC LIMIT $8) AS e
    )
-- include: list_sets

-- name: list_sets
    , page AS MATERIALIZED (
        SELECT id, row_number() OVER (ORDER BY id DESC) AS pos FROM (
            SELECT task AS id FROM sets
            UNION (
-- include: list_leases
            )
        ) AS list ORDER BY id DESC LIMIT $8
    )
-- include: task_rows

-- name: list_held
WITH page AS MATERIALIZED (
        SELECT task AS id, row_number() OVER (ORDER BY task DESC) AS pos FROM (
-- include: list_leases
        ) AS list
    )
-- include: task_rows

-- What stands ready, in the order in which it would be claimed. Only the classes
-- whose first tasks are the first ones of all are looked into; none of agents with $9.
-- name: list_ready
WITH heads AS MATERIALIZED (
        SELECT c.id FROM classes c, LATERAL (
            SELECT rank, seq FROM ready
-- include: ready_of_class
            LIMIT 1) AS first
        WHERE c.workspace = $1 AND (c.kind <> 'agent' OR NOT $9) AND c.lane >= $6 AND c.lane <= CASE $6 WHEN '' THEN repeat('z', 64) ELSE $6 END AND 'queued' = ANY ($3::text[]) AND $4 = ''
        ORDER BY first.rank, first.seq LIMIT $8
    ), page AS MATERIALIZED (
        SELECT r.task AS id, row_number() OVER (ORDER BY r.rank, r.seq) AS pos FROM heads c, LATERAL (
            SELECT task, rank, seq FROM ready
-- include: ready_of_class
            LIMIT $8) AS r
        WHERE r.task < $7::uuid ORDER BY r.rank, r.seq LIMIT $8
    )
-- include: task_rows

-- name: ready_of_class
            WHERE workspace = $1 AND class = c.id AND ($5 = '' OR phase = $5) ORDER BY rank, seq

-- name: list_leases
        SELECT task FROM leases
        WHERE workspace = $1 AND ($4 = '' OR owner = $4) AND ($6 = '' OR lane = $6) AND task < $7::uuid
            AND lease_state(leases)::text = ANY ($3::text[])
            AND ($5 = '' OR $5 = (SELECT phase FROM tasks WHERE id = task))
        ORDER BY task DESC LIMIT $8

-- What is leased is counted where it stands.
-- name: count_states
SELECT what, sum(n)::bigint FROM counted WHERE workspace = $1 GROUP BY 1
UNION ALL SELECT lease_state(leases)::text, count(*) FROM leases WHERE workspace = $1 GROUP BY 1

-- The ids of tasks grow with the clock of who made them, which is near enough: an
-- index of ready by arrival would cost each task that is created and claimed.
-- name: oldest_ready
SELECT (SELECT t.created_at FROM ready r JOIN tasks t ON t.id = r.task WHERE r.workspace = $1 ORDER BY r.task LIMIT 1),
    (SELECT count(*) FROM leases WHERE workspace = $1 AND sweep_at <= now() AND until <= now()), now()

-- Why task $1 waits. $2 is '': nobody claims.

-- name: why_frozen
SELECT f.scope, f.target, f.reason, f.actor, f.since FROM tasks t JOIN classes c ON c.id = t.class
JOIN freezes f ON f.workspace IN ('', c.workspace) AND scope_fits(f.scope, f.target, c.lane, c.account, c.conn, c.only_task, $2)
WHERE t.id = $1 AND $2 = '' ORDER BY f.id

-- Of workspace $1, task $3.
-- name: why_limits
SELECT b.what, b.name, b.room, takes(t.estimate, b.dimension), CASE b.what WHEN 'budget' THEN (SELECT g.resets_at FROM budgets g WHERE g.id = b.id) WHEN 'limit' THEN (SELECT a.until FROM account_limits a WHERE a.workspace = $1 AND a.account = b.name) END
FROM standing t, bindings($1, $2, ARRAY[t.class]) AS b
WHERE t.id = $3 AND t.state = 'queued' AND b.what IN ('quota', 'budget', 'account', 'limit') AND (b.room <= 0 OR takes(t.estimate, b.dimension) > b.room) ORDER BY b.what = 'account', b.what DESC, b.name

-- name: why_dependencies
SELECT coalesce(x.key, x.id::text), x.state, x.updated_at FROM dependencies d JOIN standing x ON x.id = d.dependency
WHERE d.task = $1 AND NOT d.met ORDER BY is_terminal(x.state) DESC, x.seq LIMIT $2

-- name: why_capability
SELECT owner, capabilities, coalesce(lanes, '{}'), seen FROM claimers
WHERE workspace = $1 AND kind = $2 AND capabilities @> $3::text[] AND (lanes IS NULL OR $4 = ANY (lanes)) AND seen > now() - $5::interval ORDER BY seen DESC LIMIT 20

-- How many tasks of the same connection and lane a claim takes before task $2 of workspace $1, as far as $3. It looks into
-- $4 classes as a claim does, from one that has ready tasks to the next; with more, or where the task does not stand ready, it is null.
-- name: why_before
WITH RECURSIVE walk (class, n) AS (
    SELECT -1, 0
    UNION ALL
    SELECT (SELECT r.class FROM ready r WHERE r.workspace = $1 AND r.class > w.class ORDER BY r.class LIMIT 1), w.n + 1 FROM walk w WHERE w.class IS NOT NULL AND w.n <= $4
)
SELECT (SELECT CASE WHEN max(w.n) <= $4 THEN (
        SELECT count(*) FROM (
            SELECT FROM walk w JOIN classes k ON k.id = w.class, LATERAL (SELECT FROM ready r WHERE r.workspace = $1 AND r.class = k.id AND (r.rank, r.seq) < (own.rank, own.seq) LIMIT $3) AS b
            WHERE k.lane = c.lane AND k.kind = c.kind AND k.conn IS NOT DISTINCT FROM c.conn LIMIT $3) AS before)
    END FROM walk w WHERE w.class IS NOT NULL)
FROM ready own JOIN classes c ON c.id = own.class WHERE own.workspace = $1 AND own.task = $2

-- What all workspaces have, by lane and state: sums that are kept, and what is leased, of which there is as
-- much as work under way. A lane has a name of its own here if somebody has set it, up to $1 of
-- them: any task may name one.
-- name: count_lanes
SELECT coalesce(named.name, CASE k.lane WHEN 'default' THEN k.lane ELSE 'other' END), k.what, sum(k.n)::bigint
FROM (
    SELECT lane, what, sum(n) AS n FROM counted GROUP BY 1, 2
    UNION ALL SELECT lane, lease_state(leases)::text, count(*) FROM leases GROUP BY 1, 2
) AS k LEFT JOIN (SELECT DISTINCT name FROM lanes ORDER BY name LIMIT $1) AS named ON named.name = k.lane
GROUP BY 1, 2

-- Each workspace that a class names, by one look into the index; of classes there may be as many as tasks.
-- name: workspaces
WITH RECURSIVE found AS (
    (SELECT workspace AS name FROM classes ORDER BY workspace LIMIT 1)
    UNION ALL
    SELECT (SELECT c.workspace FROM classes c WHERE c.workspace > f.name ORDER BY c.workspace LIMIT 1) FROM found f WHERE f.name IS NOT NULL
)
SELECT name, coalesce((SELECT sum(n) FROM counted WHERE workspace = name AND what = 'ready'), 0)::bigint FROM found WHERE name IS NOT NULL LIMIT 10000

-- What hubs are told: how many agents of each stand ready, up to $3 in a class and in $4 classes, since when the lane $2 of agents in workspace $1 is held, and how many accounts wait.
-- name: for_hubs
WITH RECURSIVE walk (class, n) AS (
    SELECT -1, 0
    UNION ALL
    SELECT (SELECT r.class FROM ready r WHERE r.workspace = $1 AND r.class > w.class ORDER BY r.class LIMIT 1), w.n + 1 FROM walk w WHERE w.class IS NOT NULL AND w.n <= $4
), owned AS MATERIALIZED (
    SELECT w.class, (SELECT c.conn FROM classes c WHERE c.id = w.class) AS conn FROM walk w
)
SELECT (SELECT coalesce(jsonb_object_agg(q.conn, q.n) FILTER (WHERE q.conn IS NOT NULL), '{}') FROM (
        SELECT o.conn, sum(b.n)::int AS n FROM owned o, LATERAL (SELECT count(*) AS n FROM (SELECT FROM ready r WHERE r.workspace = $1 AND r.class = o.class LIMIT CASE WHEN o.conn IS NULL THEN 0 ELSE $3 END) AS a) AS b
        GROUP BY 1) AS q),
    (SELECT since FROM lanes WHERE workspace = $1 AND name = $2 AND state IN ('paused', 'disabled')),
    (SELECT count(*)::int FROM account_limits WHERE workspace = $1 AND until > statement_timestamp())
