package backlog

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spawnmesh/spawnmesh/commands"
)

// Claiming is one statement, with what must be held before it in the same round
// trip. It decides class by class, in the order of the model: freeze, lane,
// capabilities, quota, budget. (What waits for a dependency or a time does not
// stand in ready at all.) Then it takes the first tasks of the classes that
// remain. A class that is refused is not looked into, so nothing in it stands in
// anyone's way. One task is claimed by the database's function claim_one, which
// asks the same.
//
// Reservations never overshoot. A claim of a workspace with budgets reserves from
// the advance of its connection's slot, if that is large enough (pickFar). Else
// it does so from what nobody was advanced, with the budgets' rows held, and
// takes an advance for the next ones where there is plenty (pickDraw). Where
// even that is too little, all advances are taken back first, and what is there
// is exactly what is left (pickHeld). So it is wherever there are quotas, which
// are counted.
//
// A workspace without limits and gates gets the same answer by a shorter
// statement, which gives none where there are some after all.
const (
	holdBudgets = `SELECT FROM budgets WHERE workspace IN ('', $1) ORDER BY id FOR NO KEY UPDATE`
	holdQuotas  = `SELECT FROM quotas WHERE workspace IN ('', $1) ORDER BY id FOR UPDATE`
	// A statement of its own: it sees the advances that were given until the
	// budgets were held.
	recallAll = `
	SELECT recall_advances(id) FROM budgets b WHERE workspace IN ('', $1) AND EXISTS (SELECT FROM budget_slots WHERE budget = b.id AND advance <> 0) ORDER BY id`
)

// Parameters: $1 claim, $2 owner, $3 limit, $4 capabilities, $5 lease,
// $6 workspace, $7 kind, $8 lanes, $9 the one task.
var (
	pickNext = `SELECT * FROM claim_one($1, $2, $3, $4, $5, $6, $7, $8)`
	pickFree = admittedFree + fromReadyFree + lockedAgain + picked + planned + taken + openedFree
	pickFar  = budgetLimits + withoutQuotas + fromReady + lockedAgain + picked + counted + taken + spending + reservingFar + opened
	pickDraw = budgetLimits + withoutQuotas + fromReady + lockedAgain + picked + counted + taken + spending + reserving + opened
	pickHeld = bothLimits + admitted + fromReady + lockedThere + picked + counted + taken + spending + reserving + quotaUses + opened
	pickOne  = bothLimits + admitted + fromOne + picked + uncounted + taken + spending + reserving + quotaUses + opened
)

// limitsOf is bothLimits with the workspace in another parameter.
func limitsOf(workspace string) string { return strings.ReplaceAll(bothLimits, "$6", workspace) }

// scopeFits says whether the limit or freeze x binds class c for claimer $2.
func scopeFits(x string) string {
	return fmt.Sprintf("scope_fits(%[1]s.scope, %[1]s.target, c.lane, c.account, c.conn, c.only_task, $2)", x)
}

var (
	frozen = `EXISTS (SELECT FROM freezes f WHERE f.workspace IN ('', c.workspace) AND ` + scopeFits("f") + `)`
	// budgetRooms and quotaRooms list the limits of workspace $6 and the room in
	// each: in millionths for budgets, in tasks for quotas. advance is the part of
	// the room that is advanced to slots.
	budgetRooms = `
		SELECT 'budget' AS what, b.id, b.workspace, b.name, b.scope, b.target, b.dimension, b.hard - s.held AS room, s.advance
		FROM budgets b, LATERAL (SELECT coalesce(sum(used + reserved), 0)::bigint AS held, coalesce(sum(advance), 0)::bigint AS advance FROM budget_slots WHERE budget = b.id) AS s
		WHERE b.workspace IN ('', $6)`
	quotaRooms = `
		SELECT 'quota', q.id, q.workspace, q.name, q.scope, q.target, '', least(
			q.concurrent - (SELECT count(*) FROM quota_uses u JOIN leases l ON l.task = u.task AND l.attempt = u.attempt WHERE u.quota = q.id),
			q.per_window - (SELECT count(*) FROM quota_uses u WHERE u.quota = q.id AND u.at > now() - q.win)), 0
		FROM quotas q WHERE q.workspace IN ('', $6)`
	budgetLimits = `
	WITH limits AS MATERIALIZED (` + budgetRooms + `
	)`
	bothLimits = `
	WITH limits AS MATERIALIZED (` + budgetRooms + ` UNION ALL ` + quotaRooms + `
	)`
	// bindings lists what one task of class c takes of each limit that binds it.
	bindings = `
		SELECT x.what, x.id, x.name, x.room, CASE x.what WHEN 'quota' THEN 1 ELSE takes(c.estimate, x.dimension) END AS amount
		FROM limits x WHERE ` + scopeFits("x")
	admitted = `, open_lanes AS MATERIALIZED (
		SELECT c.id, c.workspace, c.lane, c.account, c.conn, c.only_task, c.estimate, coalesce(l.weight, 1) AS weight
		FROM classes c LEFT JOIN lanes l ON l.workspace = c.workspace AND l.name = c.lane
		WHERE c.workspace = $6 AND c.kind = $7 AND c.capabilities <@ $4::text[] AND ($8::text[] IS NULL OR c.lane = ANY ($8))
			AND coalesce(l.state, 'active') IN ('active', 'draining') AND NOT ` + frozen + `
			AND EXISTS (SELECT FROM ready r WHERE r.class = c.id)
	), bound AS MATERIALIZED (
		SELECT c.id AS class, x.what, x.id, x.room, x.amount FROM open_lanes c, LATERAL (` + bindings + `) AS x
	), admissible AS MATERIALIZED (
		SELECT c.id, c.lane, c.weight FROM open_lanes c
		WHERE NOT EXISTS (SELECT FROM bound b WHERE b.class = c.id AND (b.room <= 0 OR b.amount > b.room))
			AND (c.account = '' OR EXISTS (SELECT FROM limits b WHERE b.what = 'budget' AND b.workspace = $6 AND b.scope = 'account' AND b.target = c.account))
	)`
	withoutQuotas = strings.Replace(admitted, "AND EXISTS (SELECT FROM ready r", "AND NOT EXISTS (SELECT FROM quotas WHERE workspace IN ('', $6)) AND EXISTS (SELECT FROM ready r", 1)
)

const (
	admittedFree = `
	WITH admissible AS MATERIALIZED (
		SELECT c.id, c.lane FROM classes c
		WHERE c.workspace = $6 AND c.kind = $7 AND c.capabilities <@ $4::text[] AND ($8::text[] IS NULL OR c.lane = ANY ($8)) AND c.account = ''
			AND EXISTS (SELECT FROM ready r WHERE r.class = c.id)
			AND NOT EXISTS (SELECT FROM budgets WHERE workspace IN ('', $6)) AND NOT EXISTS (SELECT FROM quotas WHERE workspace IN ('', $6))
			AND NOT EXISTS (SELECT FROM lanes WHERE workspace = $6) AND NOT EXISTS (SELECT FROM freezes WHERE workspace IN ('', $6))
	)`
	fromReadyFree = `, draw AS MATERIALIZED (
		SELECT lane, -ln(1 - random()) AS luck FROM admissible GROUP BY lane
	), plan AS MATERIALIZED (
		SELECT class, count(*) AS n FROM (
			SELECT a.id AS class, row_number() OVER (PARTITION BY a.lane ORDER BY r.rank, r.seq) + d.luck AS turn, r.rank, r.seq
			FROM admissible a JOIN draw d ON d.lane = a.lane, LATERAL (
				SELECT rank, seq FROM ready WHERE class = a.id AND expires_at > clock_timestamp() ORDER BY rank, seq LIMIT $3
			) AS r ORDER BY turn, r.rank, r.seq LIMIT $3
		) AS first GROUP BY class
	)`
	// fromReady takes the first tasks of all admissible classes together. A
	// lane's share is its weight: the draw makes its first place exponential, the
	// next ones follow at the distance that its weight gives. Of each class it
	// reads twice its even share; behind the end of a class that has more, nothing
	// is taken in this look.
	fromReady = `, draw AS MATERIALIZED (
		SELECT lane, -ln(1 - random()) AS luck FROM admissible GROUP BY lane
	), share AS MATERIALIZED (
		SELECT least($3::bigint, 8 + 2 * $3::bigint / greatest(count(*), 1)) AS n FROM admissible
	), front AS MATERIALIZED (
		SELECT class, place, row_number() OVER (ORDER BY turn, rank, seq) AS pos FROM (
			SELECT a.id AS class, r.rank, r.seq, r.place, (row_number() OVER (PARTITION BY a.lane ORDER BY r.rank, r.seq) - 1 + d.luck) / a.weight AS turn
			FROM admissible a JOIN draw d ON d.lane = a.lane, LATERAL (
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
	)`
	// lockedThere locks the candidates themselves. Claimers that hold the same
	// limits come one after the other, so hardly anybody else wants them; what
	// somebody has all the same is left to the next look.
	lockedThere = `, locked AS MATERIALIZED (
		SELECT ctid AS place FROM ready WHERE ctid = ANY (ARRAY (SELECT place FROM fitting)) FOR UPDATE SKIP LOCKED
	)`
	// lockedAgain walks the chosen classes once more, past what others have locked:
	// claimers at the same time do not want the same tasks.
	lockedAgain = `, locked AS MATERIALIZED (
		SELECT l.place FROM plan, LATERAL (
			SELECT r.ctid AS place FROM ready r WHERE r.class = plan.class AND r.expires_at > clock_timestamp()
			ORDER BY r.rank, r.seq LIMIT plan.n FOR UPDATE SKIP LOCKED
		) AS l
	)`
	fromOne = `, locked AS MATERIALIZED (
		SELECT r.ctid AS place FROM tasks t JOIN admissible a ON a.id = t.class
		JOIN ready r ON r.class = t.class AND r.rank = -t.priority AND r.seq = t.seq AND r.expires_at > clock_timestamp()
		WHERE t.id = $9::uuid AND $3::int > 0 FOR UPDATE OF r SKIP LOCKED
	)`
	picked = `, picked AS (
		DELETE FROM ready WHERE ctid = ANY (ARRAY (SELECT place FROM locked)) RETURNING task
	)`
	// counted says how many tasks were passed over: for want of room, or because
	// somebody else has just locked them.
	counted = `, passed AS MATERIALIZED (
		SELECT least($3::bigint, (SELECT count(*) FROM front)) - (SELECT count(*) FROM picked) AS n
	)`
	planned = `, passed AS MATERIALIZED (
		SELECT coalesce(sum(n), 0)::bigint - (SELECT count(*) FROM picked) AS n FROM plan
	)`
	uncounted = `, passed AS (
		SELECT 0::bigint AS n
	)`
	taken = `, moved AS (
		UPDATE tasks SET state = 'claimed', reason = '', attempt = attempt + 1, epoch = epoch + 1, updated_at = clock_timestamp()
		WHERE id = ANY (ARRAY (SELECT task FROM picked)) AND state = 'queued'
		RETURNING id, attempt, epoch, next_type AS type, key, title, priority, class, command, command_digest, seq, clock_timestamp() + $5::interval AS until
	)`
	spending = `, spent AS MATERIALIZED (
		SELECT b.what, b.id, b.class, b.amount, m.n FROM (SELECT class, count(*) AS n FROM moved GROUP BY class) AS m JOIN bound b USING (class)
	), owed AS MATERIALIZED (
		SELECT s.id, s.total, l.workspace, l.room - l.advance - s.total AS rest
		FROM (SELECT id, sum(amount * n)::bigint AS total FROM spent WHERE what = 'budget' GROUP BY id) AS s JOIN limits l ON l.what = 'budget' AND l.id = s.id
		WHERE s.total > 0 ORDER BY s.id
	)`
	reservingFar = `, reserved AS (
		UPDATE budget_slots s SET advance = CASE WHEN s.advance >= o.total THEN s.advance - o.total ELSE overshoot() END, reserved = s.reserved + o.total
		FROM owed o WHERE s.budget = o.id AND s.slot = budget_slot() RETURNING s.advance
	)`
	// An advance is worth at least sixteen such claims, and leaves most of the
	// room to the other slots.
	reserving = `, reserved AS (
		INSERT INTO budget_slots AS s (budget, slot, workspace, advance, reserved)
		SELECT id, budget_slot(), workspace, CASE WHEN rest < 0 THEN overshoot() WHEN rest / 32 >= total * 16 THEN rest / 32 ELSE 0 END, total FROM owed
		ON CONFLICT (budget, slot) DO UPDATE SET advance = s.advance + excluded.advance, reserved = s.reserved + excluded.reserved RETURNING s.advance
	)`
	quotaUses = `, used AS (
		INSERT INTO quota_uses (quota, task, attempt, workspace) SELECT s.id, m.id, m.attempt, $6 FROM spent s JOIN moved m USING (class) WHERE s.what = 'quota'
	)`
	opened = `, opened AS (
		INSERT INTO leases (task, workspace, attempt, epoch, type, owner, claim, until, reserved)
		SELECT m.id, $6, m.attempt, m.epoch, m.type, $2, $1::uuid, m.until, s.reserved FROM moved m
		LEFT JOIN (SELECT class, jsonb_object_agg(id, amount) AS reserved FROM spent WHERE what = 'budget' GROUP BY class) AS s ON s.class = m.class
	)` + answered
	openedFree = `, opened AS (
		INSERT INTO leases (task, workspace, attempt, epoch, type, owner, claim, until) SELECT id, $6, attempt, epoch, type, $2, $1::uuid, until FROM moved
	)` + audited + `
	SELECT ` + claimedColumns + `, p.n, limited($6)` + fromMoved
	audited = `, audited AS (
		INSERT INTO audit (workspace, actor, action, object, tasks)
		SELECT $6, $2, 'task.claimed', $1, array_agg(id) FROM moved HAVING count(*) > 0
	)`
	// A slot that is not there has no advance either. Without advances a budget
	// is tight.
	answered = audited + `
	SELECT ` + claimedColumns + `, CASE WHEN (SELECT count(*) FROM reserved) < (SELECT count(*) FROM owed) THEN overshoot() ELSE p.n END, ` + limitedNow + fromMoved
	limitedNow = `(SELECT n + (n = 2 AND coalesce((SELECT min(advance) FROM reserved) = 0, false))::int FROM limited($6) AS n)`
	fromMoved  = ` FROM passed p LEFT JOIN moved m ON true LEFT JOIN task_bodies x ON x.task = m.id ORDER BY m.priority DESC, m.seq`
)

// takeNewWork refuses new tasks of classes whose lane is closing or closed, or
// whose spent budget says that it refuses. The statement fails then, and with it
// whatever was sent behind it; refusedWork reads the error.
func takeNewWork(batch *pgx.Batch, classes []int) {
	batch.Queue(`SELECT refuse_new_work(x.lane, x.state, x.budget) FROM (
			SELECT c.lane, coalesce((SELECT state FROM lanes l WHERE l.workspace = c.workspace AND l.name = c.lane), 'active') AS state,
				coalesce((SELECT b.name FROM funds b WHERE b.workspace IN ('', c.workspace) AND b.on_hard = 'refuse'
					AND b.used + b.reserved + greatest(1, takes(c.estimate, b.dimension)) > b.hard AND `+scopeFits("b")+` LIMIT 1), '') AS budget
			FROM classes c WHERE c.id = ANY ($1) AND $2 = ''
		) AS x WHERE x.state IN ('draining', 'disabled') OR x.budget <> '' LIMIT 1`, classes, "")
}

// refusedWork turns the error of takeNewWork into the refusal that it stands for.
func refusedWork(err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok || pg.Code != "SM002":
		return err
	case pg.ConstraintName == "":
		return commands.Refuse(commands.LaneClosed, "lane %s is %s and takes no new tasks", pg.Detail, pg.Hint).Hinting("spawnmesh lane resume %s", pg.Detail)
	}
	return commands.Refuse(commands.OverBudget, "budget %s is spent and refuses new tasks", pg.ConstraintName).Hinting("spawnmesh budget show %s", pg.ConstraintName)
}
