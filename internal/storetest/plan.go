package storetest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/pgtest"
)

// A Plan is one step of how a statement was run, as EXPLAIN (ANALYZE, FORMAT JSON) tells it, and those before it.
type Plan struct {
	Type      string  `json:"Node Type"`
	Role      string  `json:"Parent Relationship"`
	Table     string  `json:"Relation Name"`
	Rows      float64 `json:"Actual Rows"`
	Loops     float64 `json:"Actual Loops"`
	Filtered  float64 `json:"Rows Removed by Filter"`
	Joined    float64 `json:"Rows Removed by Join Filter"`
	Rechecked float64 `json:"Rows Removed by Index Recheck"`
	Hit       float64 `json:"Shared Hit Blocks"`
	Missed    float64 `json:"Shared Read Blocks"`
	Plans     []Plan
}

// What does not grow with the age of an instance or the length of its queue: what
// people set, and what is under way at this moment.
var small = []string{"account_limits", "overruns", "connections", "grants", "sequences", "confirmed", "confirmed_before", "serving", "instance", "own_keys", "keys", "budgets", "budget_shards", "quotas", "lanes", "freezes", "freeze_numbers", "latches", "leases", "claimers", "invites", "tokens", "last_commits", "transitions", "grant_keys", "order_values", "webhooks",
	"counts", "tallies", "log_sums", "outputs", "listeners", "retention", "heartbeats", "recalled", "event_numbers", "audit_tree", "audit_gaps", "goose_db_version", "migration_digests", ""}

// Wasteful says what of a plan costs more the more there is: tables that are read
// whole, rows that are read to be thrown away, indexes that are walked to find few
// rows, or more rows than an answer needs. What is run first for a value is counted in
// the step that needs the value, too.
func (n Plan) Wasteful() (faults []string) {
	read := 0.0
	var walk func(n Plan, first float64)
	walk = func(n Plan, first float64) {
		for _, p := range n.Plans {
			if p.Role == "InitPlan" {
				first += p.Hit + p.Missed
			}
		}
		for _, p := range n.Plans {
			walk(p, first)
		}
		if n.Loops == 0 {
			return
		}
		if !slices.Contains(small, n.Table) {
			if n.Type == "Seq Scan" {
				faults = append(faults, "reads all of "+n.Table)
			}
			rows := n.Loops * (n.Rows + n.Filtered + n.Rechecked)
			if blocks := n.blocks() - first; strings.HasPrefix(n.Type, "Index") && blocks > manyBlocks+n.Loops*blocksALook+rows*blocksARow {
				faults = append(faults, fmt.Sprintf("walks an index of %s: %.0f blocks for %.0f rows in %.0f looks", n.Table, blocks, rows, n.Loops))
			}
			read += rows
		}
		if thrown := n.Loops * (n.Filtered + n.Joined + n.Rechecked); thrown > fewRows && !slices.Contains(small[:len(small)-1], n.Table) {
			faults = append(faults, fmt.Sprintf("throws %.0f rows of %s away (%s)", thrown, n.Table, n.Type))
		}
	}
	walk(n, 0)
	if read > manyRows {
		faults = append(faults, fmt.Sprintf("reads %.0f rows", read))
	}
	return faults
}

// blocks is how many a step itself looked at, not those before it.
func (n Plan) blocks() float64 {
	blocks := n.Hit + n.Missed
	for _, p := range n.Plans {
		blocks -= p.Hit + p.Missed
	}
	return blocks
}

// Reads says how many rows of a table a plan looks at.
func (n Plan) Reads(table string) (rows float64) {
	if n.Table == table {
		rows = n.Loops * (n.Rows + n.Filtered + n.Rechecked)
	}
	for _, p := range n.Plans {
		rows += p.Reads(table)
	}
	return rows
}

const (
	fewRows, manyRows                   = 100, 4000
	manyBlocks, blocksALook, blocksARow = 100, 10, 4 // of an index and its table: a list of ids is one look
)

// A part of a key is no key: it is that of all rows of a connection, a workspace or a class.
var partOfKey = regexp.MustCompile(`^(mirrors|ready|due|parked|tasks|questions) .*\n *Index Cond: \((conn|workspace|class) = `)

// FindsByKey fails for each statement that, as it is planned now, walks a whole index, or all rows of a connection, a workspace or a class.
func (s *Side) FindsByKey(t testing.TB, statements ...string) {
	t.Helper()
	s.findsByKey(t, `RESET role`, statements)
}

// FindsByKeyIn is FindsByKey for who sees one workspace.
func (s *Side) FindsByKeyIn(t testing.TB, workspace string, statements ...string) {
	t.Helper()
	s.findsByKey(t, `SET role = spawnmesh_app; SET spawnmesh.workspace = `+workspace, statements)
}

func (s *Side) findsByKey(t testing.TB, as string, statements []string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Admin(s.URL))
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), `SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET plan_cache_mode = force_generic_plan; SET random_page_cost = 1; `+as)
	require.NoError(t, err)
	for i, statement := range statements {
		name := fmt.Sprintf("statement_%d", i)
		d, err := conn.Prepare(t.Context(), name, statement)
		require.NoError(t, err)
		rows, err := conn.Query(t.Context(), `EXPLAIN EXECUTE `+name+`(NULL`+strings.Repeat(", NULL", len(d.ParamOIDs)-1)+`)`, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		for i, line := range plan {
			_, table, scans := strings.Cut(line, "Scan using ")
			if _, table, _ = strings.Cut(table, " on "); !scans || slices.Contains(small, strings.Fields(table)[0]) {
				continue
			}
			cond := plan[min(i+1, len(plan)-1)]
			if !strings.HasPrefix(strings.TrimSpace(cond), "Index Cond: ") || partOfKey.MatchString(table+"\n"+cond) {
				t.Errorf("it reads a whole index, or all of a connection, a workspace or a class:\n%s", strings.Join(plan, "\n"))
			}
		}
	}
}
