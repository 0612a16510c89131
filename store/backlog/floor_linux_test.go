package backlog_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// BenchmarkFloor writes the rows that claims and completions of 500 tasks write, as
// plain statements that decide nothing, check no fence and note no audit: what the
// layout itself costs. Beside it, the same through the backlog. It reports the
// processor time of the server per task.
func BenchmarkFloor(b *testing.B) {
	const claim = `WITH p AS (SELECT ctid FROM ready WHERE workspace = 'main' ORDER BY class, rank, seq LIMIT 500 FOR UPDATE SKIP LOCKED),
		gone AS (DELETE FROM ready WHERE ctid = ANY (ARRAY (SELECT ctid FROM p)) RETURNING *)
		INSERT INTO leases (task, workspace, lane, attempt, epoch, type, owner, claim, until, sweep_at)
		SELECT task, workspace, lane, attempt, epoch, type, 'worker', task, now(), now() FROM gone`
	const complete = `WITH l AS (DELETE FROM leases RETURNING *), t AS (
			UPDATE tasks t SET state = 'completed', attempt = l.attempt, epoch = l.epoch, ended_at = now(), last_type = l.type, last_owner = l.owner, last_claim = l.claim,
				last_claimed_at = l.claimed_at, last_started_at = l.claimed_at, last_outcome = 'succeeded' FROM l WHERE t.id = l.task RETURNING t.id, t.workspace, t.lane)
		INSERT INTO ended (task, workspace, lane, state) SELECT id, workspace, lane, 'completed' FROM t`
	b.Run("plain", func(b *testing.B) {
		s := newSide(b)
		fillBoard(b, boardOf(b, s, backlog.MainWorkspace), b.N, false)
		var took [2]time.Duration
		for range b.N / 500 {
			for i, sql := range []string{claim, complete} {
				before := serverTime(b)
				require.NoError(b, s.Exec(sql))
				took[i] += serverTime(b) - before
			}
		}
		reportServer(b, took)
	})
	for _, how := range []string{"free", "limits"} {
		b.Run(how, func(b *testing.B) {
			l, terms := benchBoard(b, b.N, how == "limits"), benchTerms
			terms.Limit = 500
			var took [2]time.Duration
			for range b.N / 500 {
				before := serverTime(b)
				list, err := l.Claim(b.Context(), terms)
				require.NoError(b, err)
				claimed := serverTime(b)
				fences := make([]backlog.Fence, len(list))
				for i, c := range list {
					fences[i] = c.Fence
				}
				_, err = l.CompleteMany(b.Context(), fences)
				require.NoError(b, err)
				took[0], took[1] = took[0]+claimed-before, took[1]+serverTime(b)-claimed
			}
			reportServer(b, took)
		})
	}
}

func reportServer(b *testing.B, took [2]time.Duration) {
	b.ReportMetric(float64(took[0].Nanoseconds())/1000/float64(b.N), "claim-us/task")
	b.ReportMetric(float64(took[1].Nanoseconds())/1000/float64(b.N), "complete-us/task")
}

// serverTime is the processor time that the processes of the tests' server have used.
func serverTime(b *testing.B) (sum time.Duration) {
	raw, err := os.ReadFile(filepath.Join(filepath.Dir(pgtest.ServerLog(b)), "pg", "postmaster.pid"))
	require.NoError(b, err)
	pid, _, _ := strings.Cut(string(raw), "\n")
	children, err := os.ReadFile(filepath.Join("/proc", pid, "task", pid, "children"))
	require.NoError(b, err)
	for _, child := range strings.Fields(string(children)) {
		if stat, err := os.ReadFile(filepath.Join("/proc", child, "schedstat")); err == nil { // it may have ended
			ns, err := strconv.ParseInt(strings.Fields(string(stat))[0], 10, 64)
			require.NoError(b, err)
			sum += time.Duration(ns)
		}
	}
	return sum
}
