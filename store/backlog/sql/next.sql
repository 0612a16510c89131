-- What a sweep has to do: how many tasks are ready, whether something waits since a moment that has not come yet, whether there are tallies to sum up,
-- budgets, leases to look at, due tasks, tasks to expire and limits of accounts to lift, and in how many seconds the
-- next of these is due, $2 at most. Leases of the instance's own spoke, $1, are only passed
-- over. What spent budgets stop follows from work that is under way, which may report at any moment.
-- name: next_sweep
SELECT ready, anew, tallies, budgets, coalesce(leases <= at, false), coalesce(due <= at, false), coalesce(expires <= at, false), coalesce(limits <= at, false), coalesce(lapses <= at, false), extract(epoch FROM
    greatest(least(leases, due, expires, limits, lapses, resets, rolls, CASE WHEN tallies OR budgets AND work THEN at + interval '1 second' END, at + $2::interval), at) - at)::float8
FROM (SELECT statement_timestamp() AS at,
    (SELECT coalesce(sum(n), 0)::bigint FROM counted WHERE what = 'ready') AS ready,
    (SELECT count(*) > 100 FROM (SELECT FROM tallies LIMIT 101) AS t) AS tallies,
    coalesce((SELECT made_at > statement_timestamp() FROM due WHERE made_at IS NOT NULL ORDER BY made_at DESC LIMIT 1), false) OR EXISTS (SELECT FROM account_limits WHERE since > statement_timestamp()) AS anew,
    EXISTS (SELECT FROM budgets) AS budgets,
    EXISTS (SELECT FROM leases) AS work,
    (SELECT sweep_at FROM leases WHERE owner <> $1 OR until > statement_timestamp() ORDER BY sweep_at LIMIT 1) AS leases,
    (SELECT min(at) FROM due) AS due,
    least((SELECT min(expires_at) FROM ready WHERE expires_at < 'infinity'), (SELECT min(expires_at) FROM parked WHERE expires_at < 'infinity')) AS expires,
    (SELECT min(until) FROM account_limits) AS limits,
    (SELECT min(deadline) FROM questions WHERE outcome IS NULL) AS lapses,
    (SELECT min(resets_at) FROM budgets) AS resets,
    (SELECT min(c.at + b.rolling) FROM budgets b, LATERAL (SELECT at FROM charges WHERE budget = b.id ORDER BY at LIMIT 1) AS c WHERE b.rolling IS NOT NULL) AS rolls
) AS s
