package store

import (
	"fmt"
	"strings"
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
	AtOnce  bool          // they go as soon as that is so, and are not kept at all
	SetBy   string        // the flags that say how much is kept, where no age can be set
	PartOf  string        // the kind whose rows these are parts of; "": they are rows of their own

	tables []string // the first one holds most; none: it is kept in files
	note   string   // what is noted before, for $1, in a transaction of its own; "": nothing
	prune  string   // removes up to $2 rows that are older than $1, or of any age, and says how many; "": somebody else does
}

const day = 24 * time.Hour

// Kinds are all that is kept for a while, in the order in which it is removed.
var Kinds = []Kind{
	{Name: "inbox", Since: "its message expired", Default: day, Least: inboxMargin, tables: []string{"inbox"},
		prune: pruneInbox},
	{Name: "envelopes", Since: "its message was stored: its signed bytes", Default: 32 * day, Least: questionLife, PartOf: "inbox", prune: emptyEnvelopes},
	{Name: "outbox", Since: "the peer confirmed it", Default: 7 * day, Least: time.Hour, tables: []string{"outbox"},
		note: `SELECT note_confirmed($1)`, prune: `SELECT prune_outbox($1, $2)`},
	{Name: "refused", Since: "the peer said so", Default: 30 * day, Least: time.Hour, tables: []string{"refused"},
		prune: removing("refused", `SELECT ctid FROM refused WHERE at < statement_timestamp() - $1::interval ORDER BY at`)},
	{Name: "mirrors", Since: "the agent ended", Default: 30 * day, Least: time.Hour, tables: []string{"mirrors", "inquiries", "agent_news"},
		prune: removing("mirrors", `SELECT ctid FROM mirrors WHERE ended_at < statement_timestamp() - $1::interval ORDER BY ended_at`)},
	{Name: "order-values", Since: "a spoke took the order, or it ended", AtOnce: true, tables: []string{"order_values"},
		prune: removing("order_values", `SELECT v.ctid FROM order_values v JOIN mirrors m ON m.task = v.task WHERE (m.accepted_at IS NOT NULL OR m.ended_at IS NOT NULL) AND `+anyAge)},
	{Name: "fires", Since: "the schedule was due", Default: 30 * day, Least: time.Hour, tables: []string{"schedule_fires"},
		prune: removing("schedule_fires", `SELECT ctid FROM schedule_fires WHERE at < statement_timestamp() - $1::interval ORDER BY at`)},
	{Name: "tasks", Since: "the task ended", Default: 30 * day, Least: time.Hour,
		tables: []string{"tasks", "task_bodies", "ended_attempts", "usage_reports", "sessions", "agents", "dependencies", "ended", "progress", "questions", "task_checkpoints", "overruns"}, prune: `SELECT prune_tasks($1, $2)`},
	{Name: "blob-uses", Since: "their task is gone", AtOnce: true, tables: []string{"blob_uses", "order_inputs", "peer_work", "blobs"},
		prune: counting(deleting("blob_uses", `SELECT u.ctid FROM blob_uses u WHERE NOT EXISTS (SELECT FROM tasks WHERE id = u.task) AND `+anyAge),
			deleting("order_inputs", withoutMirror("order_inputs")), deleting("peer_work", withoutMirror("peer_work")))},
	{Name: "audit", Since: "it was written", Default: 180 * day, Least: 7 * day, tables: []string{"audit", "audit_leaves", "audit_hashes"}, prune: `SELECT prune_audit($1, $2)`},
	{Name: "events", Since: "it happened", Default: 7 * day, Least: time.Hour, tables: []string{"events"},
		prune: removing("events", oldEvents)},
	{Name: "messages", Since: "it was stored, and every live reader has acknowledged it", Default: 30 * day, Least: time.Hour,
		tables: []string{"messages", "message_readers", "message_dead", "message_senders", "message_recipients", "message_workspaces"}, prune: `SELECT prune_messages($1, $2)`},
	{Name: "deliveries", Since: "its webhook has it, or it was given up", Default: 7 * day, Least: time.Hour, tables: []string{"webhook_deliveries"},
		prune: counting(deleting("webhook_deliveries", `SELECT ctid FROM webhook_deliveries WHERE ended_at < statement_timestamp() - $1::interval ORDER BY ended_at`), deleting("webhook_deliveries", ofNobody("webhook_deliveries", "webhook", "webhooks")))},
	{Name: "kills", Since: "the kill or pause expired, and its task is gone or never came", Default: day, Least: inboxMargin, tables: []string{"kills", "pauses"},
		prune: counting(
			deleting("kills", `SELECT ctid FROM kills WHERE tombstone AND exp < statement_timestamp() - $1::interval ORDER BY exp`),
			deleting("pauses", `SELECT ctid FROM pauses WHERE early < statement_timestamp() - $1::interval ORDER BY early`))},
	{Name: "classes", Since: "a task had it last", Default: 7 * day, Least: 2 * day, tables: []string{"classes"},
		prune: removing("classes", `SELECT ctid FROM classes c WHERE seen < statement_timestamp() - $1::interval AND NOT EXISTS (SELECT FROM tasks t WHERE t.class = c.id)`)},
	{Name: "claimers", Since: "it claimed last", Default: 30 * day, Least: time.Hour, tables: []string{"claimers"},
		prune: removing("claimers", `SELECT ctid FROM claimers WHERE seen < statement_timestamp() - $1::interval`)},
	{Name: "quota-uses", Since: "the claim, and its window", Default: day, Least: time.Hour, tables: []string{"quota_uses"},
		prune: removing("quota_uses", `SELECT u.ctid FROM quotas q JOIN quota_uses u ON u.quota = q.id AND u.at < statement_timestamp() - greatest($1::interval, q.win)
			WHERE NOT EXISTS (SELECT FROM leases l WHERE l.task = u.task AND l.attempt = u.attempt)`)},
	{Name: "invites", Since: "it expired", Default: 30 * day, Least: inboxMargin, tables: []string{"invites"},
		prune: removing("invites", `SELECT ctid FROM invites WHERE expires_at < statement_timestamp() - $1::interval`)},
	{Name: "tokens", Since: "it expired", Default: 30 * day, Least: time.Hour, tables: []string{"tokens"},
		prune: removing("tokens", `SELECT ctid FROM tokens WHERE expires_at < statement_timestamp() - $1::interval`)},
	{Name: "connections", Since: "it ended: its heartbeats", Default: day, Least: time.Hour, tables: []string{"heartbeats", "serving", "hub_blobs"},
		prune: counting(
			deleting("serving", `SELECT s.ctid FROM connections c JOIN serving s ON s.conn = c.id WHERE has_ended(c.state) AND c.state_at < statement_timestamp() - $1::interval`),
			deleting("hub_blobs", `SELECT h.ctid FROM connections c JOIN hub_blobs h ON h.conn = c.id WHERE has_ended(c.state) AND c.state_at < statement_timestamp() - $1::interval`),
			deleting("heartbeats", `SELECT b.ctid FROM connections c JOIN heartbeats b ON b.conn = c.id WHERE has_ended(c.state) AND c.state_at < statement_timestamp() - $1::interval`))},
	{Name: "commits", Since: "its session committed", Default: day, Least: inboxMargin, tables: []string{"last_commits"},
		prune: removing("last_commits", `SELECT ctid FROM last_commits WHERE at < statement_timestamp() - $1::interval`)},
	{Name: "recalled", Since: "the hub told it after a restore", Default: 32 * day, Least: 30*day + inboxMargin, tables: []string{"recalled"},
		prune: removing("recalled", `SELECT ctid FROM recalled WHERE at < statement_timestamp() - $1::interval`)},
	{Name: "grant-keys", Since: "it verified nothing more", Default: day, Least: inboxMargin, tables: []string{"grant_keys"},
		prune: removing("grant_keys", `SELECT ctid FROM grant_keys WHERE verifies_until < statement_timestamp() - $1::interval`)},
	{Name: "budget-sums", Since: "the budget was removed", AtOnce: true, tables: []string{"budget_shards", "charges"},
		prune: counting(deleting("budget_shards", ofNobody("budget_shards", "budget", "budgets")), deleting("charges", ofNobody("charges", "budget", "budgets")))},
	{Name: "counts", Since: "nothing is counted any more", AtOnce: true, tables: []string{"counts"},
		prune: `WITH empty AS (
				DELETE FROM counts WHERE n = 0 AND (workspace, lane, what) IN (
					SELECT workspace, lane, what FROM counts WHERE n = 0 AND ` + anyAge + ` LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING 1
			) SELECT count(*) FROM empty`},
	{Name: "logs", Since: "the last of it came", Default: 30 * day, SetBy: "hub run --output-age, --output-per-agent, --output-per-spoke, --output-total"},
	{Name: "listeners", Since: "it stopped waiting", Default: day, Least: time.Hour, tables: []string{"listeners"},
		prune: removing("listeners", `SELECT ctid FROM listeners WHERE until < statement_timestamp() - $1::interval`)},
}

// withoutMirror are the rows of a table whose orders are not known any more.
func withoutMirror(table string) string {
	return `SELECT u.ctid FROM ` + table + ` u WHERE NOT EXISTS (SELECT FROM mirrors WHERE task = u.task) AND ` + anyAge
}

// oldEvents are among the first ones. Where the first of all is not old, nothing else is read. What was written while the clock was
// ahead goes with what came after it, as rows of the audit do.
const oldEvents = `
	WITH old AS MATERIALIZED (
		SELECT seq FROM (SELECT seq, at FROM events WHERE at <= statement_timestamp() ORDER BY seq LIMIT 1) AS first WHERE at < statement_timestamp() - $1::interval
	)
	SELECT ctid FROM (SELECT ctid, seq, at FROM events WHERE (SELECT seq FROM old) IS NOT NULL ORDER BY seq LIMIT $2) AS first
	WHERE at < statement_timestamp() - $1::interval OR seq < (SELECT seq FROM old)`

// pruneInbox makes room for more of those peers' messages, too. The rows of their numbers are held in
// the order in which everybody holds several.
const pruneInbox = `
	WITH gone AS (
		DELETE FROM inbox WHERE ctid = ANY (ARRAY (SELECT ctid FROM inbox WHERE exp < statement_timestamp() - $1::interval ORDER BY exp LIMIT $2 FOR UPDATE SKIP LOCKED)) RETURNING conn, length(envelope) AS size
	), sums AS (
		SELECT conn, count(*) AS n, sum(size) AS bytes FROM gone GROUP BY conn
	), held AS (
		SELECT s.conn FROM sequences s WHERE s.conn = ANY (ARRAY (SELECT conn FROM sums)) ORDER BY s.conn FOR NO KEY UPDATE
	), less AS (
		UPDATE sequences s SET kept_rows = greatest(s.kept_rows - sums.n, 0), kept_bytes = greatest(s.kept_bytes - sums.bytes, 0) FROM held JOIN sums USING (conn) WHERE s.conn = held.conn
	)
	SELECT count(*) FROM gone`

// questionLife is how long an answer of a peer may be waited for, which is read where it is kept.
const questionLife = time.Hour

// emptyEnvelopes leaves of a peer's old messages what tells a repetition, and makes room for its next
// ones. It goes through them by their numbers, connection by connection, and says how many it has passed. A
// message holds up those behind it until it is old, too, and so does one that somebody else
// holds. The messages are held before the row of their numbers, as by who stores them.
const emptyEnvelopes = `
	WITH due AS (
		SELECT s.conn, s.emptied FROM sequences s, LATERAL (SELECT received_at FROM inbox WHERE conn = s.conn AND seq > s.emptied ORDER BY seq LIMIT 1) AS next
		WHERE next.received_at < statement_timestamp() - $1::interval ORDER BY s.conn LIMIT 1
	), ahead AS (
		SELECT i.conn, i.seq, bool_and(i.received_at < statement_timestamp() - $1::interval) OVER (ORDER BY i.seq) AS old
		FROM due, LATERAL (SELECT conn, seq, received_at FROM inbox WHERE conn = due.conn AND seq > due.emptied ORDER BY seq LIMIT $2) AS i
	), held AS (
		SELECT i.conn, i.seq, length(i.envelope) AS size FROM ahead a JOIN inbox i ON i.conn = a.conn AND i.seq = a.seq WHERE a.old FOR UPDATE OF i SKIP LOCKED
	), emptied AS (
		UPDATE inbox i SET envelope = '' FROM held h WHERE i.conn = h.conn AND i.seq = h.seq AND h.size > 0
	), passed AS (
		SELECT a.conn, a.seq, coalesce(h.size, 0) AS size, bool_and(h.seq IS NOT NULL) OVER (ORDER BY a.seq) AS whole FROM ahead a LEFT JOIN held h USING (conn, seq) WHERE a.old
	), less AS (
		UPDATE sequences s SET emptied = greatest(s.emptied, p.last), kept_bytes = greatest(s.kept_bytes - p.bytes, 0)
		FROM (SELECT conn, max(seq) FILTER (WHERE whole) AS last, sum(size) AS bytes FROM passed GROUP BY conn) AS p WHERE s.conn = p.conn
	)
	SELECT count(*) FROM passed WHERE whole`

// anyAge is true: rows that go at once are asked for by the same two parameters as
// the others, and a statement has to use each.
const anyAge = `$1 >= interval '0'`

// ofNobody finds rows of a table whose owner, that a column names, is gone, at once. It steps through an index
// that begins with the column, from one owner to the next: the rows of each are many.
func ofNobody(table, column, owners string) string {
	return fmt.Sprintf(`WITH RECURSIVE of (id) AS (
			(SELECT %[2]s FROM %[1]s ORDER BY %[2]s LIMIT 1) UNION ALL SELECT (SELECT %[2]s FROM %[1]s WHERE %[2]s > of.id ORDER BY %[2]s LIMIT 1) FROM of WHERE id IS NOT NULL
		) SELECT x.ctid FROM (SELECT id FROM of WHERE id IS NOT NULL AND NOT EXISTS (SELECT FROM %[3]s o WHERE o.id = of.id) OFFSET 0) AS gone,
			LATERAL (SELECT ctid FROM %[1]s WHERE %[2]s = gone.id AND %[4]s LIMIT $2) AS x`, table, column, owners, anyAge)
}

// removing is a statement that removes the rows whose places choose finds.
func removing(table, choose string) string { return counting(deleting(table, choose)) }

// deleting removes up to $2 of the rows whose places choose finds. Rows that
// somebody holds stay for the next time: pruning waits for nobody. An index can
// be asked for the time of the statement, and not for that of the clock, which moves.
func deleting(table, choose string) string {
	return fmt.Sprintf(`DELETE FROM %[1]s WHERE ctid = ANY (ARRAY (
			SELECT ctid FROM %[1]s WHERE ctid = ANY (ARRAY (%[2]s LIMIT $2)) FOR UPDATE SKIP LOCKED)) RETURNING 1`, table, choose)
}

// counting does what deletes say and answers with how many rows went.
func counting(deletes ...string) string {
	var sql strings.Builder
	for i, d := range deletes {
		fmt.Fprintf(&sql, ", gone%d AS (%s)", i, d)
	}
	sums := make([]string, len(deletes))
	for i := range deletes {
		sums[i] = fmt.Sprintf("(SELECT count(*) FROM gone%d)", i)
	}
	return "WITH " + sql.String()[2:] + " SELECT " + strings.Join(sums, " + ")
}
