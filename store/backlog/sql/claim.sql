-- Claiming is one statement, with what must be held before it in the same round
-- trip. It decides class by class, in the order of the model: connection, freeze, lane,
-- capabilities, quota, budget. (What waits for a dependency or a time does not
-- stand in ready at all.) Then it takes the first tasks of the classes that
-- remain. A class that is refused is not looked into, so nothing in it stands in
-- anyone's way. One task is claimed by the database's function claim_one, which
-- asks the same.
--
-- Reservations never overshoot. A claim of a workspace with budgets reserves from
-- the advance of its connection's slot, if that is large enough (claim_far). Else
-- it does so from what nobody was advanced, with the budgets' rows held, and
-- takes an advance for the next ones where there is plenty (claim_draw). Where
-- even that is too little, all advances are taken back first, and what is there
-- is exactly what is left (claim_held). So it is wherever there are quotas, which
-- are counted.
--
-- A workspace without limits and gates gets the same answer by a shorter
-- statement, claim_free, which gives none where there are some after all.
--
-- Parameters: $1 workspace, $2 owner, $3 limit, $4 capabilities, $5 lease,
-- $6 claim, $7 kind, $8 lanes, $9 the one task.

-- name: claim_next
SELECT * FROM claim_one($1, $2, $3, $4, $5, $6, $7, $8)

-- name: claim_free
    WITH admissible AS MATERIALIZED (
        SELECT c.id, c.lane || coalesce(' ' || c.conn, '') AS queue, coalesce(g.weight, 1) AS weight
        FROM classes c LEFT JOIN grants_in_force g ON g.conn = c.conn
        WHERE c.workspace = $1 AND c.kind = $7 AND c.capabilities <@ $4::text[] AND ($8::text[] IS NULL OR c.lane = ANY ($8)) AND c.account = ''
            AND (c.conn IS NULL OR g.conn IS NOT NULL) AND EXISTS (SELECT FROM ready r WHERE r.class = c.id)
            AND NOT EXISTS (SELECT FROM budgets WHERE workspace IN ('', $1)) AND NOT EXISTS (SELECT FROM quotas WHERE workspace IN ('', $1))
            AND NOT EXISTS (SELECT FROM lanes WHERE workspace = $1) AND NOT EXISTS (SELECT FROM freezes WHERE workspace IN ('', $1))
    ), draw AS MATERIALIZED (
        SELECT queue, -ln(1 - random()) AS luck FROM admissible GROUP BY queue
    ), plan AS MATERIALIZED (
        SELECT class, count(*) AS n FROM (
            SELECT a.id AS class, (row_number() OVER (PARTITION BY a.queue ORDER BY r.rank, r.seq) - 1 + d.luck) / a.weight AS turn, r.rank, r.seq
            FROM admissible a JOIN draw d ON d.queue = a.queue, LATERAL (
                SELECT rank, seq FROM ready WHERE class = a.id AND expires_at > clock_timestamp() ORDER BY rank, seq LIMIT $3
            ) AS r ORDER BY turn, r.rank, r.seq LIMIT $3
        ) AS first GROUP BY class
    )
-- include: locked_again
-- include: picked
    , passed AS MATERIALIZED (
        SELECT coalesce(sum(n), 0)::bigint - (SELECT count(*) FROM picked) AS n FROM plan
    )
-- include: taken
    , opened AS (
        INSERT INTO leases (task, workspace, lane, attempt, epoch, type, owner, claim, until, sweep_at)
        SELECT id, $1, lane, attempt, epoch, type, $2, $6::uuid, until, until FROM moved
    )
-- include: claim_audited
    SELECT
-- include: claimed_columns
        , p.n, limited($1)
-- include: from_moved

-- name: claim_far
-- include: with_budgets
-- include: open_lanes_without_quotas
-- include: from_ready
-- include: locked_again
-- include: picked
-- include: counted
-- include: taken
-- include: spending
    , reserved AS (
        UPDATE budget_slots s SET advance = CASE WHEN s.advance >= o.total THEN s.advance - o.total ELSE overshoot() END, reserved = s.reserved + o.total
        FROM owed o WHERE s.budget = o.id AND s.slot = budget_slot() RETURNING s.advance
    )
-- include: opened

-- name: claim_draw
-- include: with_budgets
-- include: open_lanes_without_quotas
-- include: from_ready
-- include: locked_again
-- include: unheld
-- include: counted
-- include: taken
-- include: spending
-- include: reserving
-- include: opened

-- name: claim_held
-- include: with_limits
-- include: open_lanes
-- include: from_ready
-- Locks the candidates themselves. Claimers that hold the same limits come one
-- after the other, so hardly anybody else wants them; what somebody has all the
-- same is left to the next look.
    , locked AS MATERIALIZED (
        SELECT ctid AS place FROM ready WHERE ctid = ANY (ARRAY (SELECT place FROM fitting)) FOR UPDATE SKIP LOCKED
    )
-- include: unheld
-- include: counted
-- include: taken
-- include: spending
-- include: reserving
-- include: quota_uses
-- include: opened

-- name: claim_named
-- include: with_limits
-- include: open_lanes
    , locked AS MATERIALIZED (
        SELECT r.ctid AS place FROM tasks t JOIN admissible a ON a.id = t.class
        JOIN ready r ON r.class = t.class AND r.rank = -t.priority AND r.seq = t.seq AND r.expires_at > clock_timestamp()
        WHERE t.id = $9::uuid AND $3::int > 0 FOR UPDATE OF r SKIP LOCKED
    )
-- include: unheld
    , passed AS (
        SELECT 0::bigint AS n
    )
-- include: taken
-- include: spending
-- include: reserving
-- include: quota_uses
-- include: opened

-- name: claimed_before
SELECT
-- include: claimed_columns
    , 0::bigint, -1
FROM (
    SELECT t.id, l.attempt, l.epoch, l.type, l.until, t.key, t.title, t.priority, t.class, t.command, t.command_digest, t.seq
    FROM leases l JOIN tasks t ON t.id = l.task AND t.epoch = l.epoch WHERE l.claim = $1
) AS m LEFT JOIN task_bodies x ON x.task = m.id ORDER BY m.priority DESC, m.seq

-- The parts.

-- name: admitted_classes
        SELECT c.id, c.workspace, c.lane, c.account, c.conn, c.only_task, c.estimate,
            c.lane || coalesce(' ' || c.conn, '') AS queue, coalesce(l.weight, 1) * coalesce(g.weight, 1) AS weight
        FROM classes c LEFT JOIN lanes l ON l.workspace = c.workspace AND l.name = c.lane LEFT JOIN grants_in_force g ON g.conn = c.conn
        WHERE c.workspace = $1 AND c.kind = $7 AND c.capabilities <@ $4::text[] AND ($8::text[] IS NULL OR c.lane = ANY ($8))
            AND coalesce(l.state, 'active') IN ('active', 'draining') AND NOT
-- include: frozen
            AND (c.conn IS NULL OR g.conn IS NOT NULL) AND EXISTS (SELECT FROM ready r WHERE r.class = c.id)

-- name: open_lanes
    , open_lanes AS MATERIALIZED (
-- include: admitted_classes
    )
-- include: admissible

-- name: open_lanes_without_quotas
    , open_lanes AS MATERIALIZED (
-- include: admitted_classes
            AND NOT EXISTS (SELECT FROM quotas WHERE workspace IN ('', $1))
    )
-- include: admissible

-- name: admissible
    , bound AS MATERIALIZED (
        SELECT c.id AS class, x.what, x.id, x.room, x.amount FROM open_lanes c, LATERAL (
-- include: bindings
        ) AS x
    ), admissible AS MATERIALIZED (
        SELECT c.id, c.queue, c.weight FROM open_lanes c
        WHERE NOT EXISTS (SELECT FROM bound b WHERE b.class = c.id AND (b.room <= 0 OR b.amount > b.room))
            AND (c.account = '' OR EXISTS (SELECT FROM limits b WHERE b.what = 'budget' AND b.workspace = $1 AND b.scope = 'account' AND b.target = c.account))
    )

-- The first tasks of all admissible classes together. In a lane each connection has
-- a queue of its own, and so have this instance's tasks. A queue's share is its
-- weight, the lane's times the connection's: the draw makes its first place exponential, the next ones follow at the
-- distance that its weight gives. Of each class it reads twice its even share;
-- behind the end of a class that has more, nothing is taken in this look.
-- name: from_ready
    , draw AS MATERIALIZED (
        SELECT queue, -ln(1 - random()) AS luck FROM admissible GROUP BY queue
    ), share AS MATERIALIZED (
        SELECT least($3::bigint, 8 + 2 * $3::bigint / greatest(count(*), 1)) AS n FROM admissible
    ), front AS MATERIALIZED (
        SELECT class, place, row_number() OVER (ORDER BY turn, rank, seq) AS pos FROM (
            SELECT a.id AS class, r.rank, r.seq, r.place, (row_number() OVER (PARTITION BY a.queue ORDER BY r.rank, r.seq) - 1 + d.luck) / a.weight AS turn
            FROM admissible a JOIN draw d ON d.queue = a.queue, LATERAL (
                SELECT rank, seq, ctid AS place FROM ready WHERE class = a.id AND expires_at > clock_timestamp() ORDER BY rank, seq LIMIT (SELECT n FROM share)
            ) AS r
        ) AS x
    ), candidates AS MATERIALIZED (
        SELECT class, place, pos FROM front WHERE pos <= least($3::bigint, (
            SELECT min(last) FROM (SELECT max(pos) AS last FROM front GROUP BY class HAVING count(*) = (SELECT n FROM share)) AS cut)) ORDER BY pos
    ), fitting AS MATERIALIZED (
        SELECT class, place FROM candidates WHERE NOT EXISTS (SELECT FROM bound WHERE amount * $3 > room) OR pos NOT IN (
            SELECT pos FROM (
                SELECT pos, sum(b.amount) OVER (PARTITION BY b.what, b.id ORDER BY pos) AS sum, b.amount, b.room FROM candidates JOIN bound b USING (class)
            ) AS sums WHERE sum > room OR sum - amount >= room
        )
    ), plan AS (
        SELECT class, count(*) AS n FROM fitting GROUP BY class
    )

-- Walks the chosen classes once more, past what others have locked: claimers at
-- the same time do not want the same tasks.
-- name: locked_again
    , locked AS MATERIALIZED (
        SELECT l.place FROM plan, LATERAL (
            SELECT r.ctid AS place FROM ready r WHERE r.class = plan.class AND r.expires_at > clock_timestamp()
            ORDER BY r.rank, r.seq LIMIT plan.n FOR UPDATE SKIP LOCKED
        ) AS l
    )

-- name: picked
    , picked AS (
        DELETE FROM ready WHERE ctid = ANY (ARRAY (SELECT place FROM locked)) RETURNING task, lane
    )

-- How many tasks were passed over: for want of room, or because somebody else has
-- just locked them.
-- A claim that holds limits waits for no task: one that somebody holds stays.
-- name: unheld
    , unheld AS MATERIALIZED (
        SELECT r.ctid AS place FROM ready r JOIN tasks t ON t.id = r.task WHERE r.ctid = ANY (ARRAY (SELECT place FROM locked))
        ORDER BY t.id FOR NO KEY UPDATE OF t SKIP LOCKED
    ), picked AS (
        DELETE FROM ready WHERE ctid = ANY (ARRAY (SELECT place FROM unheld)) RETURNING task, lane
    )

-- name: counted
    , passed AS MATERIALIZED (
        SELECT least($3::bigint, (SELECT count(*) FROM front)) - (SELECT count(*) FROM picked) AS n
    )

-- name: taken
    , moved AS (
        UPDATE tasks SET state = 'claimed', reason = '', attempt = attempt + 1, epoch = epoch + 1, updated_at = clock_timestamp()
        WHERE id = ANY (ARRAY (SELECT task FROM picked ORDER BY task)) AND state = 'queued'
        RETURNING id, lane, attempt, epoch, next_type AS type, key, title, priority, class, command, command_digest, seq, clock_timestamp() + $5::interval AS until
    ), tally AS (
        INSERT INTO tallies (workspace, lane, what, n) SELECT $1, lane, 'ready', -count(*) FROM picked GROUP BY 2
    )

-- name: spending
    , spent AS MATERIALIZED (
        SELECT b.what, b.id, b.class, b.amount, m.n FROM (SELECT class, count(*) AS n FROM moved GROUP BY class) AS m JOIN bound b USING (class)
    ), owed AS MATERIALIZED (
        SELECT s.id, s.total, l.workspace, l.room - l.advance - s.total AS rest
        FROM (SELECT id, sum(amount * n)::bigint AS total FROM spent WHERE what = 'budget' GROUP BY id) AS s JOIN limits l ON l.what = 'budget' AND l.id = s.id
        WHERE s.total > 0 ORDER BY s.id
    )

-- An advance is worth at least sixteen such claims, and leaves most of the room to
-- the other slots.
-- name: reserving
    , reserved AS (
        INSERT INTO budget_slots AS s (budget, slot, workspace, advance, reserved)
        SELECT id, budget_slot(), workspace, CASE WHEN rest < 0 THEN overshoot() WHEN rest / 32 >= total * 16 THEN rest / 32 ELSE 0 END, total FROM owed
        ON CONFLICT (budget, slot) DO UPDATE SET advance = s.advance + excluded.advance, reserved = s.reserved + excluded.reserved RETURNING s.advance
    )

-- name: quota_uses
    , used AS (
        INSERT INTO quota_uses (quota, task, attempt, workspace) SELECT s.id, m.id, m.attempt, $1 FROM spent s JOIN moved m USING (class) WHERE s.what = 'quota'
    )

-- A slot that is not there has no advance either. Without advances a budget is
-- tight.
-- name: opened
    , opened AS (
        INSERT INTO leases (task, workspace, lane, attempt, epoch, type, owner, claim, until, sweep_at, reserved)
        SELECT m.id, $1, m.lane, m.attempt, m.epoch, m.type, $2, $6::uuid, m.until, m.until, s.reserved FROM moved m
        LEFT JOIN (SELECT class, jsonb_object_agg(id, amount) AS reserved FROM spent WHERE what = 'budget' GROUP BY class) AS s ON s.class = m.class
    )
-- include: claim_audited
    SELECT
-- include: claimed_columns
        , CASE WHEN (SELECT count(*) FROM reserved) < (SELECT count(*) FROM owed) THEN overshoot() ELSE p.n END,
        (SELECT n + (n = 2 AND coalesce((SELECT min(advance) FROM reserved) = 0, false))::int FROM limited($1) AS n)
-- include: from_moved

-- name: claim_audited
    , audited AS (
        INSERT INTO audit (workspace, actor, action, object, tasks)
        SELECT $1, $2, 'task.claimed', $6, array_agg(id) FROM moved HAVING count(*) > 0
    )

-- name: from_moved
    FROM passed p LEFT JOIN moved m ON true LEFT JOIN task_bodies x ON x.task = m.id ORDER BY m.priority DESC, m.seq

-- name: claimed_columns
    coalesce(m.id::text, ''), coalesce(m.attempt, 0), coalesce(m.epoch, 0), coalesce(m.type, ''), coalesce(m.until, 'epoch'), coalesce(m.key, ''),
    coalesce(m.title, ''), coalesce(m.priority, 0), coalesce(m.class, 0),
    coalesce(m.command::text, ''), coalesce(encode(m.command_digest, 'hex'), ''), coalesce(x.body, ''), x.acceptance, x.spec

-- Notes who claims, for why.
-- name: note_claimer
INSERT INTO claimers AS c (workspace, owner, kind, capabilities, lanes) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (workspace, owner, kind) DO UPDATE SET capabilities = excluded.capabilities, lanes = excluded.lanes, seen = clock_timestamp()
WHERE c.seen < now() - interval '1 minute' OR (c.capabilities, c.lanes) IS DISTINCT FROM (excluded.capabilities, excluded.lanes)
