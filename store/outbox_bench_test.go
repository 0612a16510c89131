package store_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// BenchmarkConfirm sends messages and has them confirmed, in batches and alone: the time and
// the write-ahead log of each half, per message.
func BenchmarkConfirm(b *testing.B) {
	for _, batch := range []int{64, 1} {
		for how, confirm := range map[string]func(*testing.B, *storetest.Pair, []sent){"numbers": byNumbers, "answers": byAnswers} {
			b.Run(fmt.Sprintf("%s/of_%d", how, batch), func(b *testing.B) {
				p := storetest.NewPair(b)
				var sending, confirming spent
				for done := 0; done < b.N; done += batch {
					var list []sent
					sending.add(b, p.Hub, func() { list = send(b, p.Hub, batch) })
					confirming.add(b, p.Hub, func() { confirm(b, p, list) })
				}
				sending.report(b, "send")
				confirming.report(b, "confirm")
			})
		}
	}
}

type sent struct {
	id, body string
	seq      int64
}

// send puts answers about a task of their own into the outbox.
func send(b *testing.B, s *storetest.Side, n int) (list []sent) {
	require.NoError(b, s.DB.Tx(b.Context(), "sending", func(ctx context.Context, tx *store.Tx) error {
		drafts := make([]store.Draft, n)
		for i := range drafts {
			drafts[i] = store.Draft{Conn: s.Conn.ID, Body: &commands.Accepted{Task: storetest.NewID(), State: commands.Queued},
				Re: &signing.Ref{ID: storetest.NewID(), SHA256: strings.Repeat("ab", 32)}}
		}
		sealed, err := tx.SendNow(ctx, drafts...)
		for _, m := range sealed {
			list = append(list, sent{m.ID, hex.EncodeToString(m.Body[:]), m.Seq})
		}
		return err
	}))
	return list
}

func byNumbers(b *testing.B, p *storetest.Pair, list []sent) {
	require.NoError(b, p.Hub.DB.Confirm(b.Context(), p.Hub.Peer, commands.Numbers{Through: list[len(list)-1].seq}))
}

// byAnswers closes what answers name; that they were taken in is not counted.
func byAnswers(b *testing.B, p *storetest.Pair, list []sent) {
	require.NoError(b, p.Hub.DB.Tx(b.Context(), "closing", func(ctx context.Context, tx *store.Tx) error {
		var ids, bodies []string
		for _, m := range list {
			ids, bodies = append(ids, m.id), append(bodies, m.body)
		}
		return store.CloseOutForTest(ctx, tx, p.Hub.Conn.ID, ids, bodies)
	}))
}

// spent is what one half of the work has cost so far.
type spent struct {
	time time.Duration
	wal  int
}

func (s *spent) add(b *testing.B, side *storetest.Side, work func()) {
	const at = `SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint`
	before, began := side.Count(b, at), time.Now()
	work()
	s.time += time.Since(began)
	s.wal += side.Count(b, at) - before
}

func (s *spent) report(b *testing.B, half string) {
	b.ReportMetric(float64(s.time.Microseconds())/float64(b.N), half+"_µs/msg")
	b.ReportMetric(float64(s.wal)/float64(b.N), half+"_WAL_B/msg")
}
