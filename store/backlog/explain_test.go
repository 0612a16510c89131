package backlog_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/storetest"
)

// A watcher notes the statements that a database is sent.
type watcher struct {
	mu     sync.Mutex // guards the rest
	on     bool
	list   []watched
	config *pgx.ConnConfig // of the connections they went over
}

// A watched is one statement with its arguments and the workspace of its transaction.
type watched struct {
	sql, workspace string
	args           []any
}

func (w *watcher) TraceQueryStart(ctx context.Context, conn *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	w.note(conn, q.SQL, q.Args)
	return ctx
}

func (w *watcher) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (w *watcher) TraceBatchStart(ctx context.Context, conn *pgx.Conn, b pgx.TraceBatchStartData) context.Context {
	for _, q := range b.Batch.QueuedQueries {
		w.note(conn, q.SQL, q.Arguments)
	}
	return ctx
}

func (w *watcher) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (w *watcher) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func (w *watcher) note(conn *pgx.Conn, sql string, args []any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.config = conn.Config(); w.on {
		w.list = append(w.list, watched{sql: sql, args: args})
	}
}

// during returns the statements that do sends. Those that begin and end
// transactions are left out; the others know the workspace that they are in.
func (w *watcher) during(t *testing.T, do func(context.Context) error) (list []watched) {
	t.Helper()
	w.mu.Lock()
	w.on, w.list = true, nil
	w.mu.Unlock()
	err := do(t.Context())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.on = false
	require.NoError(t, err)
	workspace := ""
	for _, s := range w.list {
		switch {
		case strings.Contains(s.sql, "set_config('role'"):
			workspace = s.args[0].(string)
		case s.sql == "commit", s.sql == "rollback", s.sql == "RESET role":
			workspace = ""
		case strings.HasPrefix(s.sql, "begin"), strings.Contains(s.sql, "INSERT INTO mirrors"), strings.Contains(s.sql, "INSERT INTO outbox"): // a second one is a duplicate
		default:
			s.workspace = workspace
			list = append(list, s)
		}
	}
	require.NotEmpty(t, list, "it asked nothing")
	return list
}

// explain runs a statement as it was run, without effect, and returns the plan
// that every call of it has, with what this one read.
func explain(t *testing.T, config *pgx.ConnConfig, s watched) storetest.Plan {
	t.Helper()
	var raw []byte
	again(t, config, s, func(tx pgx.Tx, call string) {
		err := tx.QueryRow(t.Context(), "EXPLAIN (ANALYZE, TIMING OFF, BUFFERS, FORMAT JSON) "+call, pgx.QueryExecModeSimpleProtocol).Scan(&raw)
		require.NoError(t, err, s.sql)
	})
	var plans []struct{ Plan storetest.Plan }
	require.NoError(t, json.Unmarshal(raw, &plans), s.sql)
	return plans[0].Plan
}

// again prepares a statement as it was prepared, in a transaction that is rolled
// back, and hands on the call of it with the arguments that it had.
func again(t *testing.T, config *pgx.ConnConfig, s watched, run func(tx pgx.Tx, call string)) {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), config.Copy())
	require.NoError(t, err)
	defer conn.Close(t.Context())
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(t.Context())) }() // a connection that closes may hold its locks a little longer
	if s.workspace != "" {
		_, err := tx.Exec(t.Context(), `SELECT set_config('role', 'spawnmesh_app', true), set_config('spawnmesh.workspace', $1, true)`, s.workspace)
		require.NoError(t, err)
	}
	d, err := conn.Prepare(t.Context(), "watched", s.sql)
	require.NoError(t, err, s.sql)
	var args []string
	for i, oid := range d.ParamOIDs {
		text, err := conn.TypeMap().Encode(oid, pgtype.TextFormatCode, s.args[i], []byte{})
		require.NoError(t, err, s.sql)
		literal := "NULL"
		if text != nil {
			literal = "'" + strings.ReplaceAll(string(text), "'", "''") + "'"
		}
		args = append(args, literal)
	}
	call := "EXECUTE watched"
	if len(args) > 0 {
		call += "(" + strings.Join(args, ", ") + ")"
	}
	run(tx, call)
}
