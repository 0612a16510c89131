package feed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func text(e store.Event) []byte { return []byte(e.State) }

// running is a feed of s that runs until stop is called, or the test ends.
func running(t *testing.T, s *storetest.Side) (f *Feed, stop func()) {
	t.Helper()
	f = New(s.DB, slog.New(slog.DiscardHandler), text)
	ctx, cancel := context.WithCancel(t.Context())
	var g errgroup.Group
	g.Go(func() error { return s.DB.Watch(ctx, store.Watcher{Changed: f.Changed, Every: 2 * time.Second}) })
	g.Go(func() error { return f.Run(ctx) })
	stop = sync.OnceFunc(func() { cancel(); _ = g.Wait() })
	t.Cleanup(stop)
	require.Eventually(t, func() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.from < math.MaxInt64 }, time.Minute, time.Millisecond, "its start is noted")
	return f, stop
}

var errEnough = errors.New("enough")

// read is what f tells of the events above after, up to the one that says last.
func read(ctx context.Context, f *Feed, after int64, last string) (list []store.Event, gaps []Gap, err error) {
	err = f.Follow(ctx, after, true, Reader{
		Event: func(e Told) error {
			if list = append(list, e.Event); e.State == last {
				return errEnough
			}
			return nil
		},
		Gap:   func(g Gap) error { gaps = append(gaps, g); return nil },
		Flush: func() error { return nil },
		Quiet: time.Second,
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return list, gaps, err
}

func note(t *testing.T, s *storetest.Side, state string) {
	t.Helper()
	require.NoError(t, s.DB.NoteEvent(t.Context(), store.LinkEvent, "", state))
}

// Readers who are cut off, and a process that is started again and again, while others write: each event comes
// once and in the order of the numbers, of which none is left out.
func TestEveryEventOnceOverRestarts(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	const writers, each, restarts = 4, 60, 20
	var writing errgroup.Group
	for w := range writers {
		writing.Go(func() error {
			for i := range each {
				if err := s.DB.NoteEvent(t.Context(), store.LinkEvent, "", fmt.Sprintf("%d-%d", w, i)); err != nil {
					return err
				}
				time.Sleep(time.Millisecond)
			}
			return nil
		})
	}
	var seen []store.Event
	at := int64(0)
	for i := range restarts + 1 {
		f, stop := running(t, s)
		if i == restarts {
			require.NoError(t, writing.Wait())
			note(t, s, "the last one")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if i < restarts {
			time.AfterFunc(30*time.Millisecond, cancel)
		}
		list, gaps, err := read(ctx, f, at, "the last one")
		if i == restarts {
			require.NoError(t, err)
		}
		require.Empty(t, gaps)
		if seen = append(seen, list...); len(seen) > 0 {
			at = seen[len(seen)-1].Seq
		}
		cancel()
		stop()
	}
	next := make([]int, writers)
	links := 0
	for i, e := range seen {
		require.Equal(t, int64(i+1), e.Seq)
		var w, n int
		if _, err := fmt.Sscanf(e.State, "%d-%d", &w, &n); err == nil {
			require.Equal(t, next[w], n, "what one has written one after the other comes so")
			next[w]++
			links++
		}
	}
	require.Equal(t, writers*each, links)
}

// A reader who is far behind reads from the database, and goes on in memory.
func TestAReaderWhoIsBehindMissesNothing(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	f, _ := running(t, s)
	require.NoError(t, s.DB.Tx(t.Context(), "noting many", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO new_events (kind, state) SELECT 'link', n::text FROM generate_series(1, $1::int) AS n`, kept+3*page/2)
		return err
	}))
	slow := make(chan struct{})
	var g errgroup.Group
	first := make(chan int64, 1)
	g.Go(func() error { // its pace is not that of the others
		at := int64(0)
		err := f.Follow(t.Context(), 0, true, Reader{Quiet: time.Second, Flush: func() error { return nil }, Gap: func(Gap) error { return errors.New("a gap") }, Event: func(e Told) error {
			if at++; at == 1 {
				first <- e.Seq
				<-slow
			}
			switch {
			case e.Seq != at:
				return fmt.Errorf("%d after %d", e.Seq, at-1)
			case e.State == "end":
				return errEnough
			}
			return nil
		}})
		return err
	})
	require.Equal(t, int64(1), <-first)
	note(t, s, "end")
	list, gaps, err := read(t.Context(), f, 0, "end")
	require.NoError(t, err)
	require.Empty(t, gaps)
	require.Equal(t, int64(len(list)), list[len(list)-1].Seq)
	close(slow)
	require.ErrorIs(t, g.Wait(), errEnough)
}

// Numbers that are no longer kept are said to be missing; a number that was never given is refused.
func TestWhatIsNoLongerKeptIsSaid(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	f, _ := running(t, s)
	for range 5 {
		note(t, s, "old")
	}
	note(t, s, "end")
	_, _, err := read(t.Context(), f, 0, "end")
	require.NoError(t, err)
	require.NoError(t, s.DB.Tx(t.Context(), "pruning", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM events WHERE seq <= 4`)
		return err
	}))

	list, gaps, err := read(t.Context(), New(s.DB, slog.New(slog.DiscardHandler), text), 1, "end")

	require.NoError(t, err)
	require.Equal(t, []Gap{{From: 2, To: 4}}, gaps)
	require.Equal(t, int64(5), list[0].Seq)
	_, err = f.Since(t.Context(), 1000)
	require.Equal(t, commands.Validation, commands.CodeOf(err))
	last, err := f.Since(t.Context(), Now)
	require.NoError(t, err)
	require.Equal(t, list[len(list)-1].Seq, last)
}

// A database of before goes on above every number that was given since: who has one of them goes on, and hears of it.
func TestNumbersGoOnAboveThoseOfAnotherLife(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	_, err := s.DB.BeginIncarnation(t.Context(), []string{""}, "one")
	require.NoError(t, err)
	for range 3 {
		note(t, s, "before")
	}
	restored, err := s.DB.BeginIncarnation(t.Context(), []string{"another"}, "two")
	require.NoError(t, err)
	require.True(t, restored)
	note(t, s, "end")
	f, _ := running(t, s)

	list, gaps, err := read(t.Context(), f, 3, "end")

	require.NoError(t, err)
	require.Empty(t, gaps)
	require.Equal(t, store.RestoredEvent, list[0].Kind)
	require.Greater(t, list[0].Seq, time.Now().Add(-time.Hour).UnixMicro())
	require.Less(t, list[0].Seq, int64(1)<<53, "a number that every reader of JSON can hold")
	require.Equal(t, list[0].Seq+1, list[1].Seq)
	after, err := f.Since(t.Context(), 1000)
	require.NoError(t, err, "it may have been given in the other life")
	require.Equal(t, int64(1000), after)
}

// now is what f tells of the events above after that are there.
func now(t *testing.T, f *Feed, after int64) (states []string) {
	t.Helper()
	at, err := f.Since(t.Context(), after)
	require.NoError(t, err)
	require.NoError(t, f.Follow(t.Context(), at, false, Reader{
		Event: func(e Told) error { states = append(states, e.State); return nil },
		Gap:   func(g Gap) error { return fmt.Errorf("%+v are missing", g) },
		Flush: func() error { return nil },
	}))
	return states
}

// Who asks for the newest events first has them numbered: he and those after him are told them
// at once, whether somebody follows already or not, and without a further change.
func TestTheNewestEventsAreTold(t *testing.T) {
	t.Parallel()
	for name, followers := range map[string]int{"nobody follows": 0, "somebody follows": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := storetest.NewSide(t, 1, 2)
			f, _ := running(t, s)
			for range followers {
				defer f.join()()
			}
			for i := range 4 {
				note(t, s, fmt.Sprint(i))
			}
			last, err := f.Since(t.Context(), Now)
			require.NoError(t, err)

			require.Empty(t, now(t, f, last))
			require.Equal(t, []string{"3"}, now(t, f, last-1))
			require.Equal(t, []string{"2", "3"}, now(t, f, last-2))
			list, _, err := read(t.Context(), f, last-4, "3")
			require.NoError(t, err)
			require.Len(t, list, 4)
		})
	}
}

// What was numbered by a look that was cut off is told by the next one.
func TestALookThatWasCutOff(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	f, stop := running(t, s)
	stop()
	note(t, s, "numbered only")
	_, last, err := s.DB.NumberEvents(t.Context(), page)
	require.NoError(t, err)

	require.Equal(t, []string{"numbered only"}, now(t, f, last-1))
}

// Who follows goes on behind numbers that have no events: those are not waited for.
func TestNumbersWithoutEvents(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	f, _ := running(t, s)
	defer f.join()()
	require.NoError(t, s.DB.Tx(t.Context(), "giving numbers", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE event_numbers SET last = last + 10`)
		return err
	}))
	last, err := f.Since(t.Context(), Now)
	require.NoError(t, err)
	note(t, s, "behind them")

	require.Equal(t, []string{"behind them"}, now(t, f, last))
}

// A life of an instance that ends as it begins is told, too.
func TestAStartThatEndsAtOnceIsNoted(t *testing.T) {
	t.Parallel()
	s := storetest.NewPair(t).Hub
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	require.NoError(t, New(s.DB, slog.New(slog.DiscardHandler), text).Run(ctx))

	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM new_events WHERE kind = 'started'`))
}
