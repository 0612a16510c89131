package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// What is kept of a connection's output is known without a look at all its
// segments, whatever becomes of them.
func TestTheSumOfOutputIsThatOfItsSegments(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	conn, tasks := p.Hub.Conn.ID, []string{p.Order(t, nil), p.Order(t, nil), p.Order(t, nil)}
	sums := func() (kept, segments, rows int) {
		return p.Hub.Count(t, `SELECT coalesce(sum(bytes), 0) FROM log_sums WHERE conn = $1`, conn),
			p.Hub.Count(t, `SELECT coalesce(sum(greatest(bytes, 4096)), 0) FROM log_segments WHERE conn = $1`, conn), p.Hub.Count(t, `SELECT count(*) FROM log_sums`)
	}
	grow := func(task string, was, tail int64, segments ...store.LogSegment) {
		for i := range segments {
			segments[i].Task = task
		}
		require.NoError(t, p.Hub.DB.GrowLogs(t.Context(), conn, map[string]int64{task: was}, []*store.Log{{Task: task, Tail: tail, Segments: segments}}))
	}
	for _, step := range []struct {
		what string
		do   func()
		want int
	}{
		{"nothing came", func() {}, 0},
		{"a little counts as a block", func() { grow(tasks[0], 0, 9, store.LogSegment{Bytes: 9, New: true}) }, 4096},
		{"one grows, one begins", func() {
			grow(tasks[0], 9, 7000, store.LogSegment{Bytes: 5000}, store.LogSegment{Base: 5000, Bytes: 2000, New: true})
		}, 5000 + 4096},
		{"others", func() {
			grow(tasks[1], 0, 6000, store.LogSegment{Bytes: 6000, New: true})
			grow(tasks[2], 0, 1, store.LogSegment{Bytes: 1, New: true})
		}, 5000 + 4096 + 6000 + 4096},
		{"a segment is dropped", func() {
			require.NoError(t, p.Hub.DB.DropSegments(t.Context(), []store.LogSegment{{Task: tasks[0]}}, nil))
		}, 4096 + 6000 + 4096},
		{"a mirror is pruned", func() {
			require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET state = 'completed', ended_at = now() - interval '31 days' WHERE task = $1`, tasks[1]))
			prune(t, p.Hub)
		}, 4096 + 4096},
	} {
		step.do()

		for range 2 { // the first look makes one row of the sums
			kept, segments, _ := sums()
			require.Equal(t, []int{step.want, step.want}, []int{kept, segments}, step.what)
			list, err := p.Hub.DB.OldSegments(t.Context(), conn, store.LogBound{Bytes: int64(step.want), Age: time.Hour})
			require.NoError(t, err)
			require.Empty(t, list, step.what)
		}
		_, _, rows := sums()
		require.LessOrEqual(t, rows, 1, step.what)
	}
	oldest, err := p.Hub.DB.OldSegments(t.Context(), conn, store.LogBound{Bytes: 4096 + 4095, Age: time.Hour})
	require.NoError(t, err)
	require.Equal(t, []store.LogSegment{{Task: tasks[0], Base: 5000, Bytes: 2000}}, oldest)
	require.NoError(t, p.Hub.DB.DropSegments(t.Context(), []store.LogSegment{{Task: tasks[0], Base: 5000}, {Task: tasks[2]}}, nil))
	conns, _, err := p.Hub.DB.LogConns(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, []string{conn}, conns, "its sums are to be made one")
	_, err = p.Hub.DB.OldSegments(t.Context(), conn, store.LogBound{Age: time.Hour})
	require.NoError(t, err)
	conns, _, err = p.Hub.DB.LogConns(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, conns, "nothing is kept")
}

// A log is read as it was at one moment: streams that say more than its segments hold would end it too early.
func TestALogIsOfOneMoment(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	conn, task := p.Hub.Conn.ID, p.Order(t, nil)
	const rounds = 400
	grown := make(chan error, 1)
	go func() {
		for n := range int64(rounds) {
			l := &store.Log{Task: task, Tail: n + 1, Segments: []store.LogSegment{{Task: task, Bytes: n + 1, New: n == 0}}, Streams: []store.LogStream{{Task: task, Attempt: 1, Stream: "stdout", Through: n + 1}}}
			if err := p.Hub.DB.GrowLogs(t.Context(), conn, map[string]int64{task: n}, []*store.Log{l}); err != nil {
				grown <- err
				return
			}
		}
		grown <- nil
	}()

	for last := int64(0); last < rounds; {
		l, err := p.Hub.DB.Log(t.Context(), task)
		require.NoError(t, err)
		if last = l.Tail; last > 0 {
			require.Equal(t, []int64{last, last}, []int64{l.Segments[0].Bytes, l.Stream(1, "stdout").Through})
		}
		select {
		case err := <-grown:
			require.NoError(t, err)
			grown <- nil
		default:
		}
	}
}
