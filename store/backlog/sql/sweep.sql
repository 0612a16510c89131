-- Forgets charges that have left a rolling window.
-- name: roll_charges
WITH old AS (
    DELETE FROM charges WHERE ctid = ANY (ARRAY (
        SELECT c.ctid FROM budgets b JOIN charges c ON c.budget = b.id AND c.at <= now() - b.rolling FOR UPDATE OF c SKIP LOCKED))
    RETURNING budget, workspace, amount
), left_window AS (
    SELECT budget, workspace, sum(amount)::bigint AS amount FROM old GROUP BY 1, 2 ORDER BY 1
), forgotten AS (
    INSERT INTO budget_shards AS s (budget, shard, workspace, used) SELECT budget, budget_shard(), workspace, -amount FROM left_window
    ON CONFLICT (budget, shard) DO UPDATE SET used = s.used + excluded.used
)
SELECT FROM left_window

-- Begins windows anew whose time has come.
-- name: begin_windows
WITH begun AS (
    UPDATE budgets SET soft_since = NULL,
        resets_at = CASE WHEN every IS NULL THEN NULL ELSE resets_at + every * (1 + floor(extract(epoch FROM now() - resets_at) / extract(epoch FROM every))) END
    WHERE id = ANY (ARRAY (SELECT id FROM budgets WHERE resets_at <= now() ORDER BY id FOR NO KEY UPDATE)) AND resets_at <= now() RETURNING id
), emptied AS (
    UPDATE budget_shards SET used = 0 WHERE (budget, shard) IN (
        SELECT budget, shard FROM budget_shards WHERE budget = ANY (ARRAY (SELECT id FROM begun)) ORDER BY budget, shard FOR UPDATE)
)
SELECT FROM begun

-- name: note_soft_limits
WITH passed AS (
    UPDATE budgets b SET soft_since = CASE WHEN f.used + f.reserved >= b.soft THEN now() END FROM funds f
    WHERE b.id = ANY (ARRAY (
        SELECT g.id FROM budgets g JOIN funds s ON s.id = g.id WHERE (s.used + s.reserved >= g.soft) <> (g.soft_since IS NOT NULL) ORDER BY g.id FOR NO KEY UPDATE OF g SKIP LOCKED)) AND f.id = b.id AND (f.used + f.reserved >= b.soft) <> (b.soft_since IS NOT NULL) RETURNING b.workspace, b.name, b.soft_since
)
INSERT INTO audit (workspace, actor, action, object, code) SELECT workspace, 'self', 'budget.soft_limit', name, 'budget_exceeded' FROM passed WHERE soft_since IS NOT NULL

-- name: change_lane
WITH moved AS (
    UPDATE tasks t SET class = intern_class(c.workspace, $2, c.kind, c.capabilities, c.account, c.conn, c.only_task, c.sizes), lane = $2, updated_at = clock_timestamp()
    FROM classes c WHERE t.id = ANY ($1::uuid[]) AND c.id = t.class AND t.state = 'queued' RETURNING t.id, t.workspace
)
INSERT INTO audit (workspace, actor, action, object, code, why) SELECT workspace, 'self', 'task.downgraded', id::text, 'budget_exceeded', 'to lane ' || $2 FROM moved

-- Adds what was counted one by one to the sums, in batches. Who adds to the sums
-- does so in one order.
-- name: sum_tallies
WITH old AS (
    DELETE FROM tallies WHERE ctid = ANY (ARRAY (SELECT ctid FROM tallies LIMIT $1 FOR UPDATE SKIP LOCKED)) RETURNING workspace, lane, what, n
)
INSERT INTO counts AS c (workspace, lane, what, n) SELECT workspace, lane, what, sum(n) FROM old GROUP BY 1, 2, 3 HAVING sum(n) <> 0 ORDER BY 1, 2, 3
ON CONFLICT (workspace, lane, what) DO UPDATE SET n = c.n + excluded.n

-- name: promote_due
WITH came AS (
    DELETE FROM due WHERE task IN (SELECT task FROM due WHERE at <= now() ORDER BY at LIMIT $1 FOR UPDATE SKIP LOCKED) RETURNING task, workspace, lane
), promoted AS (
-- include: enter_ready
    FROM tasks t JOIN came ON came.task = t.id WHERE t.state = 'queued' AND t.unmet = 0 ON CONFLICT DO NOTHING RETURNING workspace, lane
), tally AS (
    INSERT INTO tallies (workspace, lane, what, n) SELECT workspace, lane, 'due', -count(*) FROM came GROUP BY 1, 2
    UNION ALL SELECT workspace, lane, 'ready', count(*) FROM promoted GROUP BY 1, 2
)
SELECT FROM promoted

-- What was to wait for a time from a moment on that has not come yet waits for that time from now on: the clock was ahead, and was set back.
-- name: wait_anew
WITH ahead AS MATERIALIZED (
    SELECT t.id, d.at - d.made_at AS wait FROM due d JOIN tasks t ON t.id = d.task WHERE d.made_at > now() ORDER BY d.made_at DESC LIMIT $1 FOR NO KEY UPDATE OF t SKIP LOCKED FOR UPDATE OF d SKIP LOCKED
), waiting AS (
    UPDATE due d SET at = now() + a.wait, made_at = now() FROM ahead a WHERE d.task = a.id RETURNING d.task, d.at
), accounts AS (
    UPDATE account_limits SET until = now() + (until - since), since = now() WHERE since > now()
)
UPDATE tasks t SET not_before = w.at, updated_at = clock_timestamp() FROM waiting w WHERE t.id = w.task RETURNING CASE WHEN t.conn IS NOT NULL AND t.attempt > 0 THEN t.id::text ELSE '' END
