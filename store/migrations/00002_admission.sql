-- The admission: what may be claimed now, by whom, and how much of it. A claim, what is
-- shown of a task, and the refusal of new work all read the same views and functions.
-- docs/decisions/0006 explains them.

-- +goose Up

-- Whether a limit or a freeze binds a class of tasks and who claims it.
CREATE FUNCTION scope_fits(scope text, target text, lane text, account text, conn uuid, only_task uuid, claimer text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT scope IN ('instance', 'workspace') OR scope = 'lane' AND target = lane OR scope = 'account' AND target = account
        OR scope = 'connection' AND target = conn::text OR scope = 'task' AND target = only_task::text OR scope = 'agent' AND target = claimer
$$;

-- What a claim takes of a limit where the task says nothing: of a quota, which has no
-- dimension, and of spawns one.
CREATE FUNCTION takes_anyway(dimension text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT CASE dimension WHEN '' THEN 1 WHEN 'spawns' THEN 1000000 ELSE 0 END::bigint $$;

-- What a task takes of a limit: one of a quota, its estimate of a budget, in millionths.
CREATE FUNCTION takes(estimate jsonb, dimension text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT coalesce((estimate->>dimension)::bigint, takes_anyway(dimension)) $$;

-- The bounds of what the tasks of a class take, by the sizes of their estimates. A
-- class is not looked into where even the lower one is too much.
CREATE FUNCTION takes_least(sizes jsonb, dimension text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT coalesce(1::bigint << 4 * (sizes->>dimension)::int, takes_anyway(dimension)) $$;
CREATE FUNCTION takes_most(sizes jsonb, dimension text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT coalesce(1::bigint << 4 * (sizes->>dimension)::int + 4, takes_anyway(dimension)) $$;

-- Whether an estimate fits the room of each dimension in rooms.
-- +goose StatementBegin
CREATE FUNCTION fits(estimate jsonb, rooms jsonb) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN NOT EXISTS (SELECT FROM jsonb_each_text(rooms) AS r WHERE takes(estimate, r.key) > r.value::bigint);
END $$;
-- +goose StatementEnd

-- All that limits claims, each with the room that is left in it: for a budget in
-- millionths of its dimension, for a quota in claims, and none where a freeze or a
-- closed lane stops everything. escrow is the part of a budget's room that its shards
-- hold, own the part in the shard of this connection. Who adds a branch adds it, too, to what
-- claim and refuse_new_work ask before they read this: both leave it out where nothing can bind.
CREATE VIEW limits WITH (security_invoker = true) AS
    SELECT 'freeze' AS what, f.id::int, f.workspace, f.reason AS name, f.scope, f.target, '' AS dimension, 0::bigint AS room, 0::bigint AS escrow, 0::bigint AS own FROM freezes f
    UNION ALL
    SELECT 'lane', 0, l.workspace, l.name, 'lane', l.name, '', 0, 0, 0 FROM lanes l WHERE l.state IN ('paused', 'disabled')
    UNION ALL
    SELECT 'quota', q.id, q.workspace, q.name, q.scope, q.target, '', least(
        q.concurrent - (SELECT count(*) FROM quota_uses u JOIN leases l ON l.task = u.task AND l.attempt = u.attempt WHERE u.quota = q.id),
        q.per_window - (SELECT count(*) FROM quota_uses u WHERE u.quota = q.id AND u.at > now() - q.win)), 0, 0
    FROM quotas q
    UNION ALL
    SELECT 'budget', b.id, b.workspace, b.name, b.scope, b.target, b.dimension, b.hard - s.held, s.escrow, s.own
    FROM budgets b, LATERAL (
        SELECT coalesce(sum(used + reserved), 0)::bigint AS held, coalesce(sum(escrow), 0)::bigint AS escrow, coalesce(sum(escrow) FILTER (WHERE shard = budget_shard()), 0)::bigint AS own
        FROM budget_shards WHERE budget = b.id) AS s;

-- What stands between a class and a claimer. All of them must have room.
CREATE TYPE binding AS (class int, what text, id int, name text, dimension text, room bigint, escrow bigint, own bigint, at_least bigint, at_most bigint);

-- What binds classes of a workspace, for a claimer ('' = whoever claims); each limit is
-- measured once. Of a class whose connection may not start anything, of one whose account has met a limit, and of
-- one of cards whose account has no budget, it says so as well: the account of an agent is whose limits it meets.
-- +goose StatementBegin
CREATE FUNCTION bindings(ws text, claimer text, of_classes int[]) RETURNS SETOF binding LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
    WITH l AS MATERIALIZED (
        SELECT * FROM limits WHERE workspace IN ('', ws)
    ), c AS MATERIALIZED (
        SELECT k.* FROM unnest(of_classes) AS u (id), LATERAL (SELECT * FROM classes WHERE id = u.id OFFSET 0) AS k
    )
    SELECT c.id, l.what, l.id, l.name, l.dimension, l.room, l.escrow, l.own, takes_least(c.sizes, l.dimension), takes_most(c.sizes, l.dimension)
    FROM c JOIN l ON scope_fits(l.scope, l.target, c.lane, c.account, c.conn, c.only_task, claimer)
    UNION ALL
    SELECT c.id, x.what, 0, x.name, '', 0, 0, 0, 1, 1 FROM c, LATERAL (
        SELECT 'connection' AS what, '' AS name WHERE c.conn IS NOT NULL AND NOT EXISTS (SELECT FROM grants_in_force g WHERE g.conn = c.conn)
        UNION ALL
        SELECT 'limit', a.account FROM account_limits a WHERE a.workspace = ws AND a.account = c.account AND a.until > clock_timestamp()
        UNION ALL
        SELECT 'account', c.account WHERE c.account <> '' AND c.kind = 'card' AND NOT EXISTS (SELECT FROM budgets b WHERE b.workspace = ws AND b.scope = 'account' AND b.target = c.account)
    ) AS x;
END $$;
-- +goose StatementEnd

-- Ends a transaction that would add tasks of these classes, with these estimates, where
-- none is taken: with SM002, which names the lane and its state, or the budget.
-- +goose StatementBegin
CREATE FUNCTION refuse_new_work(ws text, of_classes int[], estimates jsonb[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    closed record;
BEGIN
    -- As a rule there is nothing that refuses, and the plan behind this is large.
    IF NOT EXISTS (SELECT FROM lanes WHERE workspace = ws AND state IN ('draining', 'disabled')) AND NOT EXISTS (SELECT FROM budgets WHERE workspace IN ('', ws) AND on_hard = 'refuse') THEN
        RETURN;
    END IF;
    SELECT x.lane, x.state, x.budget INTO closed FROM (
        SELECT c.lane, coalesce((SELECT state FROM lanes l WHERE l.workspace = ws AND l.name = c.lane), 'active') AS state,
            coalesce((SELECT l.name FROM limits l JOIN budgets b ON b.id = l.id AND b.on_hard = 'refuse'
                WHERE l.what = 'budget' AND l.workspace IN ('', ws) AND l.room < greatest(1, takes(n.estimate, l.dimension))
                AND scope_fits(l.scope, l.target, c.lane, c.account, c.conn, c.only_task, '') LIMIT 1), '') AS budget
        FROM (SELECT DISTINCT u.class, u.estimate FROM unnest(of_classes, estimates) AS u (class, estimate)) AS n, LATERAL (SELECT * FROM classes WHERE id = n.class OFFSET 0) AS c
    ) AS x WHERE x.state IN ('draining', 'disabled') OR x.budget <> '' LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'no new tasks here' USING ERRCODE = 'SM002', DETAIL = closed.lane, HINT = closed.state, CONSTRAINT = closed.budget;
    END IF;
END $$;
-- +goose StatementEnd

-- What the steps of a claim hand on. rooms is what each estimate has to fit into, where
-- a class has some that may not.
CREATE TYPE open_class AS (class int, queue text, weight float8, rooms jsonb);
CREATE TYPE candidate AS (class int, rooms jsonb, estimate jsonb);
CREATE TYPE owed AS (budget int, amount bigint);
CREATE TYPE picked_task AS (place tid, task uuid, class int, lane text, rank int, seq bigint, estimate jsonb);

-- Holds the limits of a workspace until the end of a claim that owes more than the
-- escrow of its shard, or that a quota counts. Where what is in nobody's escrow does
-- not cover what it owes, all escrow is taken back, and what is there is exactly what
-- is left. Quotas come before budgets, budgets before their shards, each in one order.
-- +goose StatementBegin
CREATE FUNCTION hold_limits(ws text, debts owed[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    short int[];
BEGIN
    PERFORM FROM quotas WHERE workspace IN ('', ws) ORDER BY id FOR UPDATE;
    PERFORM FROM budgets WHERE workspace IN ('', ws) ORDER BY id FOR NO KEY UPDATE;
    SELECT array_agg(l.id ORDER BY l.id) INTO short FROM limits l LEFT JOIN unnest(debts) AS d ON d.budget = l.id
    WHERE l.what = 'budget' AND l.workspace IN ('', ws) AND l.escrow > 0 AND l.room - l.escrow < greatest(d.amount, 1);
    IF short IS NOT NULL THEN
        PERFORM FROM budget_shards WHERE budget IN (SELECT id FROM budgets WHERE workspace IN ('', ws)) AND (escrow <> 0 OR shard = budget_shard()) ORDER BY budget, shard FOR UPDATE;
        PERFORM recall_escrow(id) FROM unnest(short) AS id;
    END IF;
END $$;
-- +goose StatementEnd

-- What tasks take of the budgets that bind their classes.
-- +goose StatementBegin
CREATE FUNCTION owes(bound binding[], tasks picked_task[]) RETURNS owed[] LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN (SELECT array_agg(ROW(d.id, d.amount)::owed ORDER BY d.id) FROM (
        SELECT b.id, sum(t.n * takes(t.estimate, b.dimension))::bigint AS amount
        FROM unnest(bound) AS b JOIN (SELECT u.class, u.estimate, count(*) AS n FROM unnest(tasks) AS u GROUP BY 1, 2) AS t ON t.class = b.class WHERE b.what = 'budget' GROUP BY 1
    ) AS d WHERE d.amount > 0);
END $$;
-- +goose StatementEnd

-- Reserves what a claim owes: from the escrow of its shard, or, with the budgets held,
-- from what is in nobody's escrow. It then puts some of what is left into escrow for
-- the next claims: a 32nd, if that is worth sixteen such claims. A claim that finds
-- less than it saw before ends with SM001, and begins anew.
-- +goose StatementBegin
CREATE FUNCTION reserve(debts owed[], held boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    n int;
BEGIN
    IF held THEN
        INSERT INTO budget_shards AS s (budget, shard, workspace, escrow, reserved)
        SELECT l.id, budget_shard(), l.workspace, CASE WHEN l.rest / 32 >= d.amount * 16 THEN l.rest / 32 ELSE 0 END, d.amount
        FROM unnest(debts) AS d, LATERAL (SELECT b.id, b.workspace, b.room - b.escrow - d.amount AS rest FROM limits b WHERE b.what = 'budget' AND b.id = d.budget) AS l
        WHERE l.rest >= 0 ORDER BY l.id
        ON CONFLICT (budget, shard) DO UPDATE SET escrow = s.escrow + excluded.escrow, reserved = s.reserved + excluded.reserved;
    ELSE
        UPDATE budget_shards s SET escrow = s.escrow - d.amount, reserved = s.reserved + d.amount FROM unnest(debts) AS d
        WHERE s.budget = d.budget AND s.shard = budget_shard() AND s.escrow >= d.amount;
    END IF;
    GET DIAGNOSTICS n = ROW_COUNT;
    IF n < cardinality(debts) THEN
        RAISE EXCEPTION 'a reservation would overshoot its budget' USING ERRCODE = 'SM001';
    END IF;
END $$;
-- +goose StatementEnd

-- Claims up to wanted tasks for who, as caller asks, whom the audit names. The stages, in the order of the model:
--
--   1. the classes that have ready tasks and that the claimer is able to do,
--   2. what binds them: a class that something leaves no room is not looked into,
--   3. how many of each class: the first ones of all together, as far as there is room,
--   4. if that owes more than the escrow of this shard, or a quota counts it: hold the
--      limits, and decide once more,
--   5. pick them, past what others have locked,
--   6. lease, audit, reserve.
--
-- One task or a thousand, with limits or without: the statements are the same, and a
-- limit is a row of bindings. It looks at 64 classes at a time, from class start on
-- (null = any), and goes on as long as it finds nothing. Nothing claimed is one row
-- without a task. contended says that there is more to claim: others had locked it,
-- or this look did not reach it. next is where the next claim is to start.
-- +goose StatementBegin
CREATE FUNCTION claim(claim_id uuid, ws text, who text, of_kind text, caps text[], of_lanes text[], lease interval, wanted int, start int, named uuid, caller text) RETURNS TABLE (
    task text, attempt int, epoch bigint, type text, until timestamptz, key text, title text, priority int, class int, command text, digest text,
    body text, acceptance jsonb, spec jsonb, contended boolean, next int) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    seed bigint := (random() * 9007199254740991)::bigint;
    low_rank int := -2147483648;   -- of what is looked at; one place where a task is named
    low_seq bigint := 0;
    high_rank int := 2147483647;
    high_seq bigint := 9223372036854775807;
    open open_class[];
    rest open_class[];       -- of these, what is still to be looked into
    around boolean := false;
    paid boolean;            -- accounts pay for some of them
    short boolean;
    bound binding[];
    scarce int[];            -- ids of limits that may not have room for all that is wanted
    counted boolean := false; -- a quota counts some of them
    tight boolean := false;   -- the escrow of this shard may not do for all that is wanted
    share int;
    candidates candidate[];
    front int;               -- how many there were
    debts owed[];
    held boolean := false;
    picked picked_task[];
BEGIN
    contended := false;
    start := coalesce(start, (random() * (SELECT r.class FROM ready r WHERE r.workspace = ws ORDER BY r.class DESC LIMIT 1))::int, 0);
    next := start - 1;
    LOOP
        IF named IS NULL THEN
            -- It jumps from class to class, so that one without ready tasks costs nothing, and around the end until start.
            WITH RECURSIVE walk (class, around, first) AS (
                SELECT next, around, true
                UNION ALL
                SELECT n.class, n.around, false FROM walk w, LATERAL (
                    (SELECT r.class, w.around FROM ready r WHERE r.workspace = ws AND r.class > w.class AND r.class < CASE WHEN w.around THEN start ELSE 2147483647 END ORDER BY r.class LIMIT 1)
                    UNION ALL
                    (SELECT r.class, true FROM ready r WHERE NOT w.around AND r.workspace = ws AND r.class < start ORDER BY r.class LIMIT 1)
                    LIMIT 1) AS n
            )
            SELECT array_agg(o.class), bool_or(o.around), bool_or(o.paid) INTO open, around, paid FROM (
                SELECT ROW(c.id, c.lane || coalesce(' ' || c.conn, ''), coalesce(l.weight, 1) * coalesce(g.weight, 1), NULL)::open_class AS class, w.around, c.account <> '' AS paid
                FROM walk w, LATERAL (SELECT * FROM classes k WHERE k.id = w.class OFFSET 0) AS c
                LEFT JOIN lanes l ON l.workspace = ws AND l.name = c.lane LEFT JOIN grants_in_force g ON g.conn = c.conn
                WHERE NOT w.first AND c.kind = of_kind AND c.capabilities <@ caps AND (of_lanes IS NULL OR c.lane = ANY (of_lanes)) AND (c.conn IS NULL OR g.conn IS NOT NULL) LIMIT 64) AS o;
        ELSE
            SELECT array_agg(ROW(c.id, '', 1, NULL)::open_class), true INTO open, paid FROM tasks t JOIN classes c ON c.id = t.class
            WHERE t.id = named AND c.capabilities <@ caps AND (of_lanes IS NULL OR c.lane = ANY (of_lanes));
            SELECT -t.priority, t.seq INTO low_rank, low_seq FROM tasks t WHERE t.id = named;
            high_rank := low_rank;
            high_seq := low_seq;
        END IF;
        EXIT WHEN open IS NULL;
        next := (open[cardinality(open)]).class;
        LOOP
            rest := open;
            -- Where there is no limit at all, nothing binds, nor does what was seen before it went.
            bound := NULL;
            short := NULL;
            scarce := NULL;
            counted := false;
            tight := false;
            IF paid OR EXISTS (SELECT FROM budgets WHERE workspace IN ('', ws)) OR EXISTS (SELECT FROM quotas WHERE workspace IN ('', ws))
                OR EXISTS (SELECT FROM lanes WHERE workspace = ws) OR EXISTS (SELECT FROM freezes WHERE workspace IN ('', ws))
                OR EXISTS (SELECT FROM account_limits WHERE workspace = ws) THEN
                SELECT array_agg(ROW(b.class, b.what, b.id, b.name, b.dimension, x.room, b.escrow, b.own, b.at_least, b.at_most)::binding),
                    bool_or(x.room < b.at_most OR x.room <= 0), array_agg(DISTINCT b.id) FILTER (WHERE b.what IN ('budget', 'quota') AND x.room / wanted < b.at_most),
                    bool_or(b.what = 'quota'), bool_or(b.own / wanted < b.at_most) INTO bound, short, scarce, counted, tight
                FROM bindings(ws, who, ARRAY (SELECT c.class FROM unnest(open) AS c)) AS b, LATERAL (SELECT CASE WHEN held THEN b.room - b.escrow ELSE b.room END AS room) AS x;
                IF short THEN
                    rest := ARRAY (
                        SELECT ROW(c.class, c.queue, c.weight, (
                            SELECT jsonb_object_agg(t.dimension, t.room) FROM (
                                SELECT b.dimension, min(b.room) AS room FROM unnest(bound) AS b WHERE b.class = c.class AND b.what = 'budget' AND b.room < b.at_most GROUP BY 1) AS t))::open_class
                        FROM unnest(open) AS c WHERE NOT EXISTS (SELECT FROM unnest(bound) AS b WHERE b.class = c.class AND (b.room <= 0 OR b.at_least > b.room)));
                END IF;
            END IF;
            EXIT WHEN rest = '{}';

            -- The first tasks of all together. In a lane each connection has a queue of its own, and so have this instance's
            -- tasks: the luck of a queue is exponential, and its tasks follow at the distance that its weight gives.
            share := least(wanted, 8 + 2 * wanted / cardinality(rest));
            SELECT array_agg(ROW(y.class, y.rooms, CASE WHEN scarce IS NOT NULL OR tight THEN y.estimate END)::candidate ORDER BY y.pos) INTO candidates FROM (
                SELECT x.class, x.rooms, x.estimate, row_number() OVER (ORDER BY x.turn, x.rank, x.seq) AS pos FROM (
                    SELECT c.class, c.rooms, r.rank, r.seq, r.estimate, (row_number() OVER (PARTITION BY c.queue ORDER BY r.rank, r.seq) - 1
                        - ln(1 - (hashtextextended(c.queue, seed) & 9007199254740991) / 9007199254740992.0::float8)) / c.weight AS turn
                    FROM unnest(rest) AS c, LATERAL (
                        SELECT rank, seq, estimate FROM (
                            SELECT rank, seq, estimate FROM ready WHERE workspace = ws AND class = c.class AND expires_at > clock_timestamp()
                                AND (rank, seq) >= (low_rank, low_seq) AND (rank, seq) <= (high_rank, high_seq) ORDER BY rank, seq LIMIT 2000) AS near
                        WHERE c.rooms IS NULL OR fits(estimate, c.rooms) ORDER BY rank, seq LIMIT share) AS r) AS x
                ORDER BY pos LIMIT wanted) AS y;
            EXIT WHEN candidates IS NULL;
            contended := true;
            front := cardinality(candidates);
            IF share < wanted THEN
                -- Behind the end of a class that may have more, nothing is taken in this try.
                candidates := candidates[:coalesce((SELECT min(x.last) FROM (
                    SELECT max(c.pos) AS last FROM unnest(candidates) WITH ORDINALITY AS c (class, rooms, estimate, pos) GROUP BY c.class HAVING count(*) = share) AS x), wanted)];
            END IF;
            IF scarce IS NOT NULL THEN
                candidates := ARRAY (
                    SELECT ROW(c.class, c.rooms, c.estimate)::candidate FROM unnest(candidates) WITH ORDINALITY AS c (class, rooms, estimate, pos) WHERE c.pos NOT IN (
                        SELECT pos FROM (
                            SELECT c.pos, b.room, takes(c.estimate, b.dimension) AS own, sum(takes(c.estimate, b.dimension)) OVER (PARTITION BY b.what, b.id ORDER BY c.pos) AS total
                            FROM unnest(bound) AS b JOIN unnest(candidates) WITH ORDINALITY AS c (class, rooms, estimate, pos) ON c.class = b.class WHERE b.id = ANY (scarce)) AS sums
                        WHERE total > room OR total - own >= room));
                EXIT WHEN candidates = '{}';
            END IF;

            IF tight AND NOT held THEN
                held := EXISTS (
                    SELECT FROM unnest(bound) AS b JOIN unnest(candidates) AS c ON c.class = b.class GROUP BY b.what, b.id
                    HAVING b.what = 'quota' OR b.what = 'budget' AND sum(takes(c.estimate, b.dimension)) > min(b.own));
                IF held THEN
                    PERFORM hold_limits(ws, owes(bound, ARRAY (SELECT ROW(NULL, NULL, c.class, NULL, NULL, NULL, c.estimate)::picked_task FROM unnest(candidates) AS c)));
                    CONTINUE;
                END IF;
            END IF;

            SELECT array_agg(ROW(r.place, r.task, p.class, r.lane, r.rank, r.seq, r.estimate)::picked_task) INTO picked
            FROM (SELECT c.class, c.rooms, count(*) AS n FROM unnest(candidates) AS c GROUP BY 1, 2) AS p, LATERAL (
                SELECT ctid AS place, task, lane, rank, seq, estimate FROM ready
                WHERE workspace = ws AND class = p.class AND expires_at > clock_timestamp() AND (rank, seq) >= (low_rank, low_seq) AND (rank, seq) <= (high_rank, high_seq)
                    AND (p.rooms IS NULL OR fits(estimate, p.rooms)) ORDER BY rank, seq LIMIT p.n FOR UPDATE SKIP LOCKED) AS r;
            IF scarce IS NOT NULL THEN
                SELECT array_agg(p) INTO picked FROM unnest(picked) AS p WHERE p.task NOT IN (
                    SELECT task FROM (
                        SELECT p.task, b.room, takes(p.estimate, b.dimension) AS own, sum(takes(p.estimate, b.dimension)) OVER (PARTITION BY b.what, b.id ORDER BY p.rank, p.seq, p.task) AS total
                        FROM unnest(bound) AS b JOIN unnest(picked) AS p ON p.class = b.class WHERE b.id = ANY (scarce)) AS sums
                    WHERE total > room OR total - own >= room);
            END IF;
            EXIT WHEN picked IS NOT NULL;
            -- Somebody else has all of it: without these classes.
            open := ARRAY (SELECT c FROM unnest(open) AS c WHERE c.class NOT IN (SELECT x.class FROM unnest(candidates) AS x));
        END LOOP;
        EXIT WHEN picked IS NOT NULL OR cardinality(open) < 64 OR named IS NOT NULL;
    END LOOP;
    next := next + 1;
    IF picked IS NULL THEN
        RETURN QUERY SELECT '', 0, 0::bigint, '', 'epoch'::timestamptz, '', '', 0, 0, '', '', '', NULL::jsonb, NULL::jsonb, contended, next;
        RETURN;
    END IF;
    contended := cardinality(picked) < front OR cardinality(picked) < wanted AND cardinality(open) = 64;

    INSERT INTO tallies (workspace, lane, what, n) SELECT ws, p.lane, 'ready', -count(*) FROM unnest(picked) AS p GROUP BY 2;
    INSERT INTO audit (workspace, actor, action, object, why, tasks)
    VALUES (ws, caller, 'task.claimed', CASE cardinality(picked) WHEN 1 THEN (picked[1]).task ELSE claim_id END::text,
        CASE cardinality(picked) WHEN 1 THEN 'attempt ' || (SELECT r.attempt FROM ready r WHERE r.ctid = (picked[1]).place) ELSE cardinality(picked) || ' tasks' END
            || CASE WHEN who <> caller THEN ', for ' || who ELSE '' END, ARRAY (SELECT p.task FROM unnest(picked) AS p));
    RETURN QUERY
    WITH gone AS (
        DELETE FROM ready r USING (SELECT p.place FROM unnest(picked) AS p LIMIT cardinality(picked)) AS p WHERE r.ctid = p.place
        RETURNING r.task, r.class, r.lane, r.rank, r.seq, r.estimate, r.attempt, r.epoch, r.type, r.key, r.title, r.body, clock_timestamp() + lease AS until
    ), opened AS (
        INSERT INTO leases (task, workspace, lane, conn, attempt, epoch, type, owner, claim, until, sweep_at, budgets, reserved)
        SELECT g.task, ws, g.lane, CASE WHEN g.body THEN (SELECT t.conn FROM tasks t WHERE t.id = g.task) END, g.attempt, g.epoch, g.type, who, claim_id, g.until, g.until,
            CASE WHEN bound IS NOT NULL THEN (SELECT array_agg(b.id) FROM unnest(bound) AS b WHERE b.class = g.class AND b.what = 'budget') END, CASE WHEN bound IS NOT NULL THEN g.estimate END
        FROM gone g
    )
    SELECT g.task::text, g.attempt, g.epoch, g.type, g.until, coalesce(g.key, ''), g.title, -g.rank, g.class, coalesce(x.command, ''), coalesce(x.digest, ''),
        coalesce(x.body, ''), x.acceptance, x.spec, contended, next
    FROM gone g LEFT JOIN LATERAL (
        SELECT t.command::text AS command, encode(t.command_digest, 'hex') AS digest, b.body, b.acceptance, b.spec FROM tasks t JOIN task_bodies b ON b.task = t.id
        WHERE g.body AND t.id = g.task OFFSET 0) AS x ON true ORDER BY g.rank, g.seq;
    IF bound IS NOT NULL THEN
        debts := owes(bound, picked);
        IF debts IS NOT NULL THEN
            PERFORM reserve(debts, held);
        END IF;
    END IF;
    IF counted THEN
        INSERT INTO quota_uses (quota, task, attempt, workspace)
        SELECT b.id, l.task, l.attempt, ws FROM unnest(bound) AS b JOIN unnest(picked) AS p ON p.class = b.class JOIN leases l ON l.task = p.task WHERE b.what = 'quota';
    END IF;
END $$;
-- +goose StatementEnd

REVOKE INSERT, UPDATE, DELETE ON limits FROM spawnmesh_engine;
GRANT SELECT ON limits TO spawnmesh_app, spawnmesh_engine;
