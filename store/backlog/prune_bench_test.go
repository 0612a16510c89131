package backlog_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/scale"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// BenchmarkPrune removes what SPAWNMESH_ENDED spawns left, on the hub and on the
// spoke in one database, all of it too old, alone and beside somebody who works.
func BenchmarkPrune(b *testing.B) {
	ended := scale.Of(b, "SPAWNMESH_ENDED", 100_000)
	l := newLarge(b, onDisk(b), ended, ended/10, everything)
	l.age(b)
	alone := l.works(b, func(d time.Duration) bool { return d > 5*time.Second })

	began := time.Now()
	gone, err := l.DB.Prune(b.Context(), 0, 2*time.Second)
	require.NoError(b, err)
	took, rows := time.Since(began), int64(0)
	for _, n := range gone {
		rows += n
	}
	done := make(chan map[string]int64, 1)
	go func() {
		rest, err := l.DB.Prune(b.Context(), 0, time.Hour)
		if err != nil {
			b.Error(err)
		}
		done <- rest
	}()
	began = time.Now()
	beside := l.works(b, func(time.Duration) bool { return len(done) > 0 })
	rest := <-done
	both := time.Since(began)

	fmt.Printf("alone %.0f rows/s; tasks created, claimed and completed: %.0f/s alone, %.0f/s beside it\n", float64(rows)/took.Seconds(), alone, beside)
	for kind, n := range rest {
		if n > 0 {
			fmt.Printf("%8d of %s\n", n+gone[kind], kind)
		}
	}
	fmt.Printf("beside them, rows of %.0f spawns/s\n", float64(rest["tasks"])/both.Seconds())
}

// age adds the messages that spawns leave and makes all that has ended a year old.
func (l *large) age(b *testing.B) {
	owner, err := pgx.Connect(b.Context(), pgtest.Admin(l.URL))
	require.NoError(b, err)
	defer owner.Close(context.Background())
	for _, sql := range []string{
		`SET session_replication_role = replica`,
		`INSERT INTO outbox (id, conn, seq, queue, kind, digest, task, exp, envelope)
			SELECT gen_random_uuid(), c.id, 100000000 + row_number() OVER (), 'evt', 'agent.started', '', t.id, now(), repeat('x', 600)::bytea
			FROM tasks t, generate_series(1, 3), connections c WHERE t.ended_at IS NOT NULL AND c.peer_name = 'attic'`,
		`INSERT INTO inbox (conn, id, seq, digest, kind, task, exp, envelope)
			SELECT c.id, gen_random_uuid(), 100000000 + row_number() OVER (), '', 'agent.started', t.id, now(), repeat('x', 600)::bytea
			FROM tasks t, generate_series(1, 4), connections c WHERE t.ended_at IS NOT NULL AND c.peer_name = 'attic'`,
		`UPDATE tasks SET ended_at = ended_at - interval '1 year' WHERE ended_at IS NOT NULL`,
		`UPDATE ended SET at = at - interval '1 year'`,
		`UPDATE mirrors SET ended_at = ended_at - interval '1 year' WHERE ended_at IS NOT NULL`,
		`UPDATE audit SET at = at - interval '1 year'`,
		`UPDATE outbox SET created_at = created_at - interval '1 year', exp = exp - interval '1 year'`,
		`UPDATE confirmed SET numbers = '{[1,1000000000]}'`,
		`INSERT INTO confirmed_before (conn, at, numbers) SELECT conn, now() - interval '1 year', numbers FROM confirmed`,
		`UPDATE inbox SET exp = exp - interval '1 year'`,
		`VACUUM ANALYZE`,
	} {
		_, err := owner.Exec(b.Context(), sql)
		require.NoError(b, err, sql)
	}
}

// works creates, claims and completes one task after the other until enough, and
// returns how many it did a second.
func (l *large) works(b *testing.B, enough func(time.Duration) bool) float64 {
	b.Helper()
	began, n := time.Now(), 0
	for !enough(time.Since(began)) {
		create(b, l.main, backlog.TaskSpec{Title: "t"})
		list, err := l.main.Claim(b.Context(), benchTerms)
		require.NoError(b, err)
		_, err = l.main.CompleteMany(b.Context(), []backlog.Fence{list[0].Fence})
		require.NoError(b, err)
		n++
	}
	return float64(n) / time.Since(began).Seconds()
}
