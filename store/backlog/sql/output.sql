-- name: keep_output
INSERT INTO outputs (task, attempt, conn, command, command_digest, epoch)
SELECT t.id, u.attempt, t.conn, t.command, t.command_digest, CASE u.epoch WHEN 0 THEN t.epoch ELSE u.epoch END
FROM unnest($1::uuid[], $2::int[], $3::bigint[]) AS u (task, attempt, epoch) JOIN standing t ON t.id = u.task
JOIN connections c ON c.id = t.conn AND c.state IN ('pending', 'active', 'suspended')
WHERE t.command IS NOT NULL AND u.attempt <= t.attempt ORDER BY t.id, u.attempt ON CONFLICT DO NOTHING

-- name: unsent_output
SELECT o.task::text, o.attempt, o.epoch, o.conn::text, o.command::text, encode(o.command_digest, 'hex'), o.stdout, o.stderr, o.stdout_ended, o.stderr_ended
FROM outputs o JOIN connections c ON c.id = o.conn AND c.state IN ('pending', 'active', 'suspended')
WHERE $1::uuid[] IS NULL OR o.task = ANY($1) ORDER BY o.task, o.attempt

-- name: move_output
UPDATE outputs o SET stdout = u.stdout, stderr = u.stderr, stdout_ended = u.stdout_ended, stderr_ended = u.stderr_ended
FROM unnest($1::uuid[], $2::int[], $3::bigint[], $4::bigint[], $5::boolean[], $6::boolean[]) AS u (task, attempt, stdout, stderr, stdout_ended, stderr_ended)
WHERE o.task = u.task AND o.attempt = u.attempt

-- name: drop_output
DELETE FROM outputs o USING unnest($1::uuid[], $2::int[]) AS u (task, attempt) WHERE o.task = u.task AND o.attempt = u.attempt

-- name: drop_output_of_ended
DELETE FROM outputs o USING connections c WHERE c.id = o.conn AND c.state NOT IN ('pending', 'active', 'suspended')
