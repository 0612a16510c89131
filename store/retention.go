package store

import (
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/signing"
)

// inboxMargin is how long after its expiry a message's id is remembered: it can
// still be accepted until then.
const inboxMargin = 2*signing.Skew + time.Hour

// A Kind is rows that are kept for a while after their last use.
type Kind struct {
	Name    string
	Since   string        // what their age is counted from
	Default time.Duration // how long they are kept
	Least   time.Duration // nobody may keep them for less

	tables []string // the first one holds most
	prune  string   // removes up to $2 rows that are older than $1, and says how many
}

const day = 24 * time.Hour

// Kinds are all that is kept for a while, in the order in which it is removed.
var Kinds = []Kind{
	{Name: "inbox", Since: "its message expired", Default: day, Least: inboxMargin, tables: []string{"inbox"},
		prune: removing("inbox", `SELECT ctid FROM inbox WHERE exp < statement_timestamp() - $1::interval ORDER BY exp`)},
	// A peer that was restored from a backup gets again what it has lost; and both
	// sides compare the newest messages as long as they can be accepted. What comes
	// behind the first message of the period was confirmed within it, too.
	{Name: "outbox", Since: "the peer confirmed it", Default: 7 * day, Least: time.Hour, tables: []string{"outbox"},
		prune: removing("outbox", `SELECT o.ctid FROM connections c, LATERAL (
				SELECT (SELECT seq FROM outbox WHERE conn = c.id ORDER BY seq LIMIT 1) AS first,
					coalesce((SELECT seq FROM outbox WHERE conn = c.id AND created_at BETWEEN statement_timestamp() - $1::interval AND statement_timestamp() ORDER BY seq LIMIT 1), 9223372036854775807) AS seq
				OFFSET 0
			) AS recent, LATERAL (
				SELECT min(seq) AS seq, min(exp) AS exp, count(*) AS n FROM (
					SELECT seq, exp FROM outbox WHERE conn = c.id AND closed_at IS NOT NULL AND recent.first < recent.seq ORDER BY seq DESC LIMIT 2000) AS x
			) AS newest, LATERAL (
				SELECT ctid FROM outbox WHERE conn = c.id AND seq < recent.seq AND closed_at < statement_timestamp() - $1::interval
					AND (exp < statement_timestamp() - interval '1 day' OR has_ended(c.state) OR newest.n = 2000 AND seq < newest.seq AND exp <= newest.exp)
				ORDER BY seq LIMIT $2
			) AS o`)},
	{Name: "mirrors", Since: "the agent ended", Default: 30 * day, Least: time.Hour, tables: []string{"mirrors"},
		prune: removing("mirrors", `SELECT ctid FROM mirrors WHERE ended_at < statement_timestamp() - $1::interval ORDER BY ended_at`)},
	{Name: "tasks", Since: "the task ended", Default: 30 * day, Least: time.Hour,
		tables: []string{"tasks", "task_bodies", "ended_attempts", "usage_reports", "sessions", "agents", "dependencies", "ended_waiting"}, prune: `SELECT prune_tasks($1, $2)`},
	{Name: "audit", Since: "it was written", Default: 180 * day, Least: 7 * day, tables: []string{"audit"}, prune: `SELECT prune_audit($1, $2)`},
	{Name: "kills", Since: "the kill expired", Default: day, Least: inboxMargin, tables: []string{"kills"},
		prune: removing("kills", `SELECT ctid FROM kills k WHERE exp < statement_timestamp() - $1::interval AND NOT EXISTS (SELECT FROM tasks t WHERE t.id = k.task)`)},
	{Name: "classes", Since: "a task had it last", Default: 7 * day, Least: 2 * day, tables: []string{"classes"},
		prune: removing("classes", `SELECT ctid FROM classes c WHERE seen < statement_timestamp() - $1::interval AND NOT EXISTS (SELECT FROM tasks t WHERE t.class = c.id)`)},
	{Name: "claimers", Since: "it claimed last", Default: 30 * day, Least: time.Hour, tables: []string{"claimers"},
		prune: removing("claimers", `SELECT ctid FROM claimers WHERE seen < statement_timestamp() - $1::interval`)},
	{Name: "quota-uses", Since: "the claim, and its window", Default: day, Least: time.Hour, tables: []string{"quota_uses"},
		prune: removing("quota_uses", `SELECT u.ctid FROM quotas q JOIN quota_uses u ON u.quota = q.id AND u.at < statement_timestamp() - greatest($1::interval, q.win)
			WHERE NOT EXISTS (SELECT FROM leases l WHERE l.task = u.task AND l.attempt = u.attempt)`)},
	{Name: "invites", Since: "it expired", Default: 30 * day, Least: inboxMargin, tables: []string{"invites"},
		prune: removing("invites", `SELECT ctid FROM invites WHERE expires_at < statement_timestamp() - $1::interval`)},
	{Name: "connections", Since: "it ended: its heartbeats", Default: day, Least: time.Hour, tables: []string{"heartbeats", "serving"},
		prune: `WITH old AS (SELECT id FROM connections WHERE has_ended(state) AND state_at < statement_timestamp() - $1::interval),
			served AS (DELETE FROM serving WHERE conn IN (SELECT id FROM old)),
			beats AS (DELETE FROM heartbeats WHERE conn IN (SELECT id FROM old) AND $2 > 0 RETURNING 1)
			SELECT count(*) FROM beats`},
	{Name: "commits", Since: "its session committed", Default: day, Least: inboxMargin, tables: []string{"last_commits"},
		prune: removing("last_commits", `SELECT ctid FROM last_commits WHERE at < statement_timestamp() - $1::interval`)},
	{Name: "recalled", Since: "the hub told it after a restore", Default: 32 * day, Least: 30*day + inboxMargin, tables: []string{"recalled"},
		prune: removing("recalled", `SELECT ctid FROM recalled WHERE at < statement_timestamp() - $1::interval`)},
	{Name: "grant-keys", Since: "it verified nothing more", Default: day, Least: inboxMargin, tables: []string{"grant_keys"},
		prune: removing("grant_keys", `SELECT ctid FROM grant_keys WHERE verifies_until < statement_timestamp() - $1::interval`)},
	{Name: "budget-sums", Since: "the budget was removed", Default: day, Least: time.Hour, tables: []string{"budget_slots", "charges"},
		prune: `WITH sums AS (
				DELETE FROM budget_slots s WHERE $1 > interval '0' AND NOT EXISTS (SELECT FROM budgets b WHERE b.id = s.budget) RETURNING 1
			), parts AS (
				DELETE FROM charges WHERE ctid = ANY (ARRAY (SELECT ctid FROM charges c WHERE NOT EXISTS (SELECT FROM budgets b WHERE b.id = c.budget) LIMIT $2 FOR UPDATE SKIP LOCKED)) RETURNING 1
			) SELECT (SELECT count(*) FROM sums) + (SELECT count(*) FROM parts)`},
	{Name: "counts", Since: "nothing is counted any more", Default: day, Least: time.Hour, tables: []string{"counts"},
		prune: `WITH empty AS (
				DELETE FROM counts WHERE n = 0 AND (workspace, lane, what) IN (
					SELECT workspace, lane, what FROM counts WHERE n = 0 AND $1 > interval '0' LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING 1
			) SELECT count(*) FROM empty`},
	{Name: "listeners", Since: "it stopped waiting", Default: day, Least: time.Hour, tables: []string{"listeners"},
		prune: removing("listeners", `SELECT ctid FROM listeners WHERE until < statement_timestamp() - $1::interval`)},
}

// removing is a statement that removes the rows whose places choose finds. Rows
// that somebody holds stay for the next time: pruning waits for nobody. An index can
// be asked for the time of the statement, and not for that of the clock, which moves.
func removing(table, choose string) string {
	return fmt.Sprintf(`WITH old AS (
			DELETE FROM %[1]s WHERE ctid = ANY (ARRAY (
				SELECT ctid FROM %[1]s WHERE ctid = ANY (ARRAY (%[2]s LIMIT $2)) FOR UPDATE SKIP LOCKED)) RETURNING 1
		) SELECT count(*) FROM old`, table, choose)
}
