package meshtest

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// trips counts how often each transaction of an instance waits for its database.
type trips struct {
	mu   sync.Mutex // guards the rest
	open map[*pgx.Conn]*transaction
	done []transaction
}

// A transaction is what it was sent, and in how many round trips.
type transaction struct {
	sql   string
	trips int
}

func (w *trips) TraceQueryStart(ctx context.Context, conn *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	return w.sent(ctx, conn, q.SQL)
}

func (w *trips) TraceBatchStart(ctx context.Context, conn *pgx.Conn, b pgx.TraceBatchStartData) context.Context {
	var all []string
	for _, q := range b.Batch.QueuedQueries {
		all = append(all, q.SQL)
	}
	return w.sent(ctx, conn, all...)
}

func (w *trips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData)     {}
func (w *trips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (w *trips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func (w *trips) sent(ctx context.Context, conn *pgx.Conn, sql ...string) context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	if sql[0] == "begin" {
		w.open[conn] = &transaction{}
	}
	if tx := w.open[conn]; tx != nil {
		tx.sql, tx.trips = tx.sql+strings.Join(sql, "\n"), tx.trips+1
		if last := sql[len(sql)-1]; last == "commit" || last == "rollback" {
			w.done = append(w.done, *tx)
			delete(w.open, conn)
		}
	}
	return ctx
}

// of returns the round trips of each transaction so far that was sent text.
func (w *trips) of(text string) (list []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, tx := range w.done {
		if strings.Contains(tx.sql, text) {
			list = append(list, tx.trips)
		}
	}
	return list
}

// No step of a spawn waits for its database more than twice, once the connection is known.
func TestASpawnWaitsForItsDatabasesAFewTimes(t *testing.T) {
	t.Parallel()
	m := Start(t)
	m.Stop(t, "hub")
	atHub, atSpoke := &trips{open: map[*pgx.Conn]*transaction{}}, &trips{open: map[*pgx.Conn]*transaction{}}
	m.Hub.tracer = atHub
	m.Start(t, "hub")
	s := m.Join(t, "attic")
	s.tracer = atSpoke
	m.Start(t, "attic")
	m.AwaitLink(t, "attic")
	for range 2 { // then the connection is known, and the class of the tasks
		m.Wait(t, m.Noop(t, "attic"))
	}
	ran := len(atSpoke.of("INSERT INTO sessions"))

	m.Wait(t, m.Noop(t, "attic"))

	m.Check(t)
	last := func(w *trips, text string) int { list := w.of(text); return list[len(list)-1] }
	require.Equal(t, 2, last(atHub, "INSERT INTO mirrors"), "an order")
	require.Equal(t, 2, last(atSpoke, "INSERT INTO inbox"), "an intake")
	require.Equal(t, 1, last(atSpoke, "FROM claim("), "a claim")
	require.Equal(t, ran+1, len(atSpoke.of("INSERT INTO sessions")))
	require.Equal(t, 2, last(atSpoke, "INSERT INTO sessions"), "start and end")
	require.Equal(t, 2, last(atHub, "INSERT INTO inbox"), "a report")
}
