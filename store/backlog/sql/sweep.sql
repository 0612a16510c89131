-- Forgets charges that have left a rolling window.
-- name: roll_charges
WITH old AS (
    DELETE FROM charges WHERE ctid = ANY (ARRAY (
        SELECT c.ctid FROM budgets b JOIN charges c ON c.budget = b.id AND c.at <= now() - b.rolling FOR UPDATE OF c SKIP LOCKED))
    RETURNING budget, workspace, amount
), left_window AS (
    SELECT budget, workspace, sum(amount)::bigint AS amount FROM old GROUP BY 1, 2 ORDER BY 1
), forgotten AS (
    INSERT INTO budget_slots AS s (budget, slot, workspace, used) SELECT budget, budget_slot(), workspace, -amount FROM left_window
    ON CONFLICT (budget, slot) DO UPDATE SET used = s.used + excluded.used
)
SELECT FROM left_window

-- Begins windows anew whose time has come.
-- name: begin_windows
WITH begun AS (
    UPDATE budgets SET soft_since = NULL,
        resets_at = CASE WHEN every IS NULL THEN NULL ELSE resets_at + every * (1 + floor(extract(epoch FROM now() - resets_at) / extract(epoch FROM every))) END
    WHERE id = ANY (ARRAY (SELECT id FROM budgets WHERE resets_at <= now() ORDER BY id FOR NO KEY UPDATE)) AND resets_at <= now() RETURNING id
), emptied AS (
    UPDATE budget_slots SET used = 0 WHERE budget = ANY (ARRAY (SELECT id FROM begun))
)
SELECT FROM begun

-- name: note_soft_limits
WITH passed AS (
    UPDATE budgets b SET soft_since = CASE WHEN f.used + f.reserved >= b.soft THEN now() END FROM funds f
    WHERE b.id = ANY (ARRAY (SELECT id FROM budgets WHERE soft IS NOT NULL ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)) AND f.id = b.id AND (f.used + f.reserved >= b.soft) <> (b.soft_since IS NOT NULL) RETURNING b.workspace, b.name, b.soft_since
)
INSERT INTO audit (workspace, actor, action, object, code) SELECT workspace, 'self', 'budget.soft_limit', name, 'budget_exceeded' FROM passed WHERE soft_since IS NOT NULL

-- name: change_lane
WITH moved AS (
    UPDATE tasks t SET class = intern_class(c.workspace, $2, c.kind, c.capabilities, c.account, c.conn, c.only_task, c.estimate), updated_at = clock_timestamp()
    FROM classes c WHERE t.id = ANY ($1::uuid[]) AND c.id = t.class AND t.state = 'queued' RETURNING t.id, t.workspace
)
INSERT INTO audit (workspace, actor, action, object, code, why) SELECT workspace, 'self', 'task.downgraded', id::text, 'budget_exceeded', 'to lane ' || $2 FROM moved

-- Sums up what was counted one by one, in batches.
-- name: sum_tallies
WITH old AS (
    DELETE FROM tallies WHERE ctid = ANY (ARRAY (SELECT ctid FROM tallies LIMIT $1 FOR UPDATE SKIP LOCKED)) RETURNING workspace, state, n
)
INSERT INTO tallies (workspace, state, n) SELECT workspace, state, sum(n) FROM old GROUP BY 1, 2 HAVING sum(n) <> 0

-- name: promote_due
WITH came AS (
    DELETE FROM due WHERE task IN (SELECT task FROM due WHERE at <= now() ORDER BY at LIMIT $1 FOR UPDATE SKIP LOCKED) RETURNING task
)
INSERT INTO ready (class, rank, seq, task, workspace, expires_at)
SELECT class, -priority, seq, id, workspace, CASE attempt WHEN 0 THEN expires_at ELSE 'infinity' END FROM tasks JOIN came ON task = id WHERE state = 'queued' AND unmet = 0
ON CONFLICT DO NOTHING
