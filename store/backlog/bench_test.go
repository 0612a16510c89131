package backlog_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// benchBoard is a backlog with n tasks ready, with everything on or nothing.
func benchBoard(b *testing.B, n int, everything bool) *backlog.Workspace {
	return fillBoard(b, board(b), n, everything)
}

// fillBoard adds n tasks, with everything on or nothing.
func fillBoard(b *testing.B, l *backlog.Workspace, n int, everything bool) *backlog.Workspace {
	if everything {
		most := 9_000_000_000 * backlog.Unit
		require.NoError(b, l.SetBudget(b.Context(), backlog.Budget{Name: "tokens-of-all", Scope: "workspace", Dimension: "tokens", Hard: most}))
		require.NoError(b, l.SetBudget(b.Context(), backlog.Budget{Name: "money", Scope: "account", Target: "bench", Dimension: "usd", Hard: most}))
	}
	for n > 0 {
		specs := benchSpecs(min(n, 1000), everything)
		create(b, l, specs...)
		n -= len(specs)
	}
	return l
}

// benchSpecs are n tasks, of four sets of capabilities where everything is on.
func benchSpecs(n int, everything bool) []backlog.TaskSpec {
	sets := [][]string{nil, {"linux"}, {"linux", "python"}, {"gpu", "linux"}}
	specs := make([]backlog.TaskSpec, n)
	for i := range specs {
		specs[i].Title = fmt.Sprintf("task %d", i)
		if everything {
			specs[i].Account, specs[i].Capabilities = "bench", sets[i%len(sets)]
			specs[i].Estimate = map[string]backlog.Amount{"tokens": backlog.Amount(1500+i%2*500) * backlog.Unit, "usd": backlog.Unit / 100}
		}
	}
	return specs
}

var benchTerms = backlog.ClaimTerms{Owner: "worker", Limit: 1, Lease: time.Minute, Capabilities: []string{"gpu", "linux", "python"}}

// BenchmarkClaim claims tasks one at a time and in batches, from one
// connection and from 16 at once; b.N counts tasks.
func BenchmarkClaim(b *testing.B) {
	for _, how := range []string{"free", "limits"} {
		for _, limit := range []int{1, 500} {
			b.Run(fmt.Sprintf("%s/%d", how, limit), func(b *testing.B) {
				l, terms, n := benchBoard(b, b.N, how == "limits"), benchTerms, b.N
				terms.Limit = limit
				b.ResetTimer()
				for n > 0 {
					list, err := l.Claim(b.Context(), terms)
					require.NoError(b, err)
					require.NotEmpty(b, list)
					n -= len(list)
				}
			})
		}
		b.Run(how+"/16x1", func(b *testing.B) {
			l := benchBoard(b, b.N, how == "limits")
			var got atomic.Int64
			b.SetParallelism(8)
			b.ResetTimer()
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					list, err := l.Claim(b.Context(), benchTerms)
					if err != nil {
						b.Error(err)
					}
					got.Add(int64(len(list)))
				}
			})
			require.EqualValues(b, b.N, got.Load())
		})
	}
}

// BenchmarkCreate creates tasks one at a time and 1,000 in a call; b.N counts tasks.
func BenchmarkCreate(b *testing.B) {
	for _, how := range []string{"free", "limits"} {
		for _, size := range []int{1, 1000} {
			b.Run(fmt.Sprintf("%s/%d", how, size), func(b *testing.B) {
				l := benchBoard(b, 1, how == "limits")
				b.ResetTimer()
				for n := 0; n < b.N; n += size {
					create(b, l, benchSpecs(min(size, b.N-n), how == "limits")...)
				}
			})
		}
	}
}

// BenchmarkWork claims and completes tasks, 500 at a time, from 4 workers at once.
func BenchmarkWork(b *testing.B) {
	l, terms := benchBoard(b, b.N, true), benchTerms
	terms.Limit = 500
	var left atomic.Int64
	left.Store(int64(b.N))
	var workers sync.WaitGroup
	b.ResetTimer()
	for range 4 {
		workers.Go(func() {
			for left.Load() > 0 {
				list, err := l.Claim(b.Context(), terms)
				fences := make([]backlog.Fence, len(list))
				for i, c := range list {
					fences[i] = c.Fence
				}
				if err == nil && len(list) > 0 {
					_, err = l.CompleteMany(b.Context(), fences)
				}
				if err != nil {
					b.Error(err)
					return
				}
				left.Add(int64(-len(list)))
			}
		})
	}
	workers.Wait()
}

// BenchmarkClaimAmongClasses claims where 10,000 classes have ready tasks, of this
// instance or of a hundred connections.
func BenchmarkClaimAmongClasses(b *testing.B) {
	for what, conns := range map[string]int{"own": 0, "asked": 100} {
		b.Run(what, func(b *testing.B) {
			s := newSide(b)
			l := boardOf(b, s, backlog.MainWorkspace)
			owner, err := pgx.Connect(b.Context(), pgtest.Admin(s.URL))
			require.NoError(b, err)
			for _, sql := range []string{
				fmt.Sprintf(`INSERT INTO connections (id, peer, peer_name, authority, state, link_key) SELECT gen_random_uuid(), 'p' || n, 'p' || n, 'obeys', 'active', '' FROM generate_series(1, %d) AS n`, conns),
				`INSERT INTO grants (conn, kinds, runtimes) SELECT id, '{}', '{}' FROM connections`,
				fmt.Sprintf(`INSERT INTO classes (workspace, lane, kind, capabilities, account, conn, sizes, digest)
					SELECT 'main', 'default', 'card', '{}', '', (SELECT id FROM connections WHERE peer_name = 'p' || 1 + n %% %d), '{}', n::text::bytea FROM generate_series(1, 10000) AS n`, max(conns, 1)),
				`INSERT INTO tasks (id, class, conn) SELECT gen_random_uuid(), id, conn FROM classes, generate_series(1, 10)`,
				`INSERT INTO ready (class, rank, seq, task, workspace, lane, expires_at) SELECT class, 0, seq, id, workspace, lane, 'infinity' FROM tasks`,
				`VACUUM ANALYZE`,
			} {
				_, err := owner.Exec(b.Context(), sql)
				require.NoError(b, err)
			}
			require.NoError(b, owner.Close(b.Context()))
			for _, limit := range []int{1, 100} {
				b.Run(fmt.Sprint(limit), func(b *testing.B) {
					terms := benchTerms
					terms.Limit = limit
					for b.Loop() {
						list, err := l.Claim(b.Context(), terms)
						require.NoError(b, err)
						require.NotEmpty(b, list)
					}
				})
			}
		})
	}
}
