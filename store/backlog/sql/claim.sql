-- Claiming: the database's function claim decides, picks, reserves and leases, see
-- store/migrations/00002_admission.sql.

-- name: claim
SELECT * FROM claim($1, $2, $3, $4, $5, $6, $7, $8, $9, nullif($10::text, '')::uuid, $11)

-- What claim $1 has, whoever asks again because the answer was lost.
-- name: claimed_before
SELECT t.id::text, l.attempt, l.epoch, l.type, l.until, coalesce(t.key, ''), t.title, t.priority, t.class, coalesce(t.command::text, ''),
    coalesce(encode(t.command_digest, 'hex'), ''), coalesce(x.body, ''), x.acceptance, x.spec, false, 0
FROM leases l JOIN tasks t ON t.id = l.task LEFT JOIN task_bodies x ON x.task = t.id
WHERE l.claim = $1 ORDER BY t.priority DESC, t.seq

-- Notes who claims, for why.
-- name: note_claimer
INSERT INTO claimers AS c (workspace, owner, kind, capabilities, lanes) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (workspace, owner, kind) DO UPDATE SET capabilities = excluded.capabilities, lanes = excluded.lanes, seen = clock_timestamp()
WHERE c.seen < now() - interval '1 minute' OR (c.capabilities, c.lanes) IS DISTINCT FROM (excluded.capabilities, excluded.lanes)
