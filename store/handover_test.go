package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// numbers returns the numbers of the messages that a cursor returns next.
func numbers(t *testing.T, c *store.Cursor) (list []int64) {
	t.Helper()
	out, err := c.Next(t.Context())
	require.NoError(t, err)
	for _, o := range out {
		list = append(list, o.Seq)
	}
	return list
}

// question sends so many questions in one transaction.
func question(t *testing.T, s *storetest.Side, n int) {
	t.Helper()
	require.NoError(t, s.DB.Tx(t.Context(), "asking", func(_ context.Context, tx *store.Tx) error {
		for range n {
			tx.Send(store.Draft{Conn: s.Conn.ID, Body: &commands.Status{Task: storetest.NewID()}, Life: time.Hour})
		}
		return nil
	}))
}

// outgoing is what the outbox of s holds.
func outgoing(t *testing.T, s *storetest.Side) []store.Outgoing {
	t.Helper()
	out, err := s.DB.NewCursor(s.Conn.ID).Next(t.Context())
	require.NoError(t, err)
	return out
}

func TestWhatWasCommittedIsSentFromMemory(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	question(t, p.Hub, 1)
	require.Equal(t, []int64{1}, numbers(t, p.Hub.Out), "from the table")
	question(t, p.Hub, 2)
	question(t, p.Hub, 1)
	require.NoError(t, p.Hub.Exec(`DELETE FROM outbox`))

	require.Equal(t, []int64{2, 3, 4}, numbers(t, p.Hub.Out))
	require.Empty(t, numbers(t, p.Hub.Out))
}

// Two transactions that commit one after the other may hand over in another order. The numbers
// go out in their own.
func TestHandOversInAnotherOrder(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		between bool // the relay comes in between
		table   bool // has the messages
	}{"the relay comes in between": {between: true, table: true}, "the relay comes later": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := storetest.NewPair(t)
			question(t, p.Hub, 3)
			all := outgoing(t, p.Hub)
			c := p.Hub.DB.NewCursor(p.Hub.Conn.ID)
			store.StandsForTest(c, 0)
			if !tt.table {
				require.NoError(t, p.Hub.Exec(`DELETE FROM outbox`))
			}
			var got []int64

			store.HandOverForTest(c, all[2:])
			if tt.between {
				got = numbers(t, c)
			}
			store.HandOverForTest(c, all[:2])
			got = append(got, numbers(t, c)...)

			require.Equal(t, []int64{1, 2, 3}, got)
			require.Empty(t, numbers(t, c))
		})
	}
}

// What there is no room for is read from the table.
func TestManyMessagesAreHandedOver(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	require.Empty(t, numbers(t, p.Hub.Out))
	const many = 2*store.RelayBatch + 10
	for range 3 {
		question(t, p.Hub, many/3)
	}

	var got []int64
	for range 3 {
		got = append(got, numbers(t, p.Hub.Out)...)
	}

	require.Len(t, got, many/3*3)
	for i, n := range got {
		require.EqualValues(t, i+1, n)
	}
}

// A process that ends between its commit and the hand-over loses nothing: the next one reads the
// table.
func TestACrashBeforeTheHandOverLosesNothing(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	require.Empty(t, numbers(t, p.Hub.Out))
	question(t, p.Hub, 2)

	again := storetest.OpenSide(t, p.Hub.URL, 1, 2, 8)

	require.Equal(t, []int64{1, 2}, numbers(t, again.DB.NewCursor(p.Hub.Conn.ID)))
}

// A process that does not serve the connection notifies the one that does.
func TestAnotherProcessNotifies(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	require.Empty(t, numbers(t, p.Hub.Out))
	guest := storetest.OpenSide(t, p.Hub.URL, 1, 2, 8)
	guest.Conn = p.Hub.Conn
	conn, err := pgx.Connect(t.Context(), pgtest.Admin(p.Hub.URL))
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), `LISTEN spawnmesh_changed`)
	require.NoError(t, err)
	ctx, done := context.WithTimeout(t.Context(), 30*time.Second)
	defer done()

	question(t, guest, 1)

	_, err = conn.WaitForNotification(ctx)
	require.NoError(t, err)
	last, err := p.Hub.DB.LastNumbers(t.Context())
	require.NoError(t, err)
	p.Hub.Out.Reread(last[p.Hub.Conn.ID])
	require.Equal(t, []int64{1}, numbers(t, p.Hub.Out))
	question(t, guest, 1)
	question(t, p.Hub, 1)
	require.Equal(t, []int64{2, 3}, numbers(t, p.Hub.Out), "what is missing in between is read")
}

// Who changes a connection rings, too: its process reads the table seldom.
func TestAChangeOfAConnectionRings(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	conn, err := pgx.Connect(t.Context(), pgtest.Admin(p.Hub.URL))
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), `LISTEN spawnmesh_changed`)
	require.NoError(t, err)
	ctx, done := context.WithTimeout(t.Context(), 30*time.Second)
	defer done()

	_, err = p.Hub.DB.SetConnectionState(t.Context(), p.Hub.Conn.ID, store.Suspended, "a holiday", "test", nil)

	require.NoError(t, err)
	_, err = conn.WaitForNotification(ctx)
	require.NoError(t, err)
}

// By a clock that was set back a message is too new to be sent again; its time comes all the same.
func TestAMessageIsSentAgainThoughTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	question(t, p.Hub, 1)
	require.Equal(t, []int64{1}, numbers(t, p.Hub.Out))
	require.NoError(t, p.Hub.Exec(`UPDATE outbox SET created_at = created_at + interval '1 minute'`))
	store.SentLongAgoForTest(p.Hub.Out)

	again, err := p.Hub.Out.Again(t.Context())

	require.NoError(t, err)
	require.Empty(t, again)
	require.False(t, p.Hub.Out.Due().IsZero())
	require.NoError(t, p.Hub.Exec(`UPDATE confirmed SET numbers = '{[1,1]}'`))
	store.SentLongAgoForTest(p.Hub.Out)
	_, err = p.Hub.Out.Again(t.Context())
	require.NoError(t, err)
	require.True(t, p.Hub.Out.Due().IsZero(), "nothing is open")
}

// To a peer whose database is away nothing is sent again, however long that lasts. Then it is at once, and no sooner than otherwise where
// it was away for a moment.
func TestToAPeerWithoutItsDatabaseNothingIsSentAgain(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	out := p.Hub.Out
	question(t, p.Hub, 1)
	require.Equal(t, []int64{1}, numbers(t, out))
	require.Empty(t, numbers(t, out))
	require.NoError(t, p.Hub.Exec(`UPDATE outbox SET created_at = created_at - interval '1 hour'`))
	again := func() int {
		list, err := out.Again(t.Context())
		require.NoError(t, err)
		return len(list)
	}
	out.Hold()
	store.OverdueForTest(out)
	require.Zero(t, again())
	require.True(t, out.Due().IsZero(), "nobody wakes for it")

	out.Release()
	require.Equal(t, 1, again())
	require.Zero(t, again())

	for away, sent := range map[time.Duration]int{time.Second: 0, time.Minute: 1} {
		out.Hold()
		store.HeldLongForTest(out, away)
		out.Hold() // as each heartbeat without numbers does
		out.Release()
		require.Equal(t, sent, again(), "away for %s", away)
	}
}

// Copies of what the peer does not read for now would only fill its queue.
func TestToAPeerThatIsSuspendedNothingIsSentAgainThatStartsWork(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	out := p.Hub.Out
	question(t, p.Hub, 2)
	require.NoError(t, p.Hub.Exec(`UPDATE outbox SET queue = 'run' WHERE seq = 1`))
	require.Equal(t, []int64{1, 2}, numbers(t, out))
	require.NoError(t, p.Hub.Exec(`UPDATE outbox SET created_at = created_at - interval '1 hour'`))
	for suspended, want := range map[bool]string{true: "[2]", false: "[1 2]"} {
		out.Suspend(suspended)
		store.OverdueForTest(out)

		list, err := out.Again(t.Context())

		require.NoError(t, err)
		var seqs []int64
		for _, o := range list {
			seqs = append(seqs, o.Seq)
		}
		require.Equal(t, want, fmt.Sprint(seqs), "suspended: %t", suspended)
	}
}

// What went past a queue without room is sent again like all else.
func TestWhatGoesPastAFullQueueComesAgain(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	out := p.Hub.Out
	question(t, p.Hub, 3)
	require.NoError(t, p.Hub.Exec(`UPDATE outbox SET queue = 'run' WHERE seq <> 2`))
	list, err := out.Next(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 3)
	out.Full([]store.Outgoing{list[0], list[2]}, 3)
	again := func() (seqs []int64) {
		require.NoError(t, p.Hub.Exec(`UPDATE outbox SET created_at = created_at - interval '1 hour'`))
		store.OverdueForTest(out)
		list, err := out.Again(t.Context())
		require.NoError(t, err)
		for _, o := range list {
			seqs = append(seqs, o.Seq)
		}
		return seqs
	}

	require.Equal(t, []int64{2}, again())

	question(t, p.Hub, 1)
	require.Equal(t, []int64{4}, numbers(t, out))
	require.Equal(t, []int64{2, 4}, again())
	require.NoError(t, p.Hub.Exec(`UPDATE confirmed SET numbers = '{[1,5)}'`))
	store.SentLongAgoForTest(out)
	list, err = out.Again(t.Context())
	require.NoError(t, err)
	require.Empty(t, list)
	require.False(t, store.RepeatsForTest(out), "nothing is open")
	question(t, p.Hub, 1)
	require.Equal(t, []int64{5}, numbers(t, out))
	require.True(t, store.RepeatsForTest(out))
}

// Messages that stay open, as of tasks that the peer's host cannot judge now, keep no other from being sent again: they are by turns, each
// of which takes longer than the one before.
func TestWhatStaysOpenKeepsNothingFromComingAgain(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	const behind = 10
	question(t, p.Hub, store.RelayBatch+behind)
	for len(numbers(t, p.Hub.Out)) > 0 {
	}
	require.NoError(t, p.Hub.Exec(`UPDATE outbox SET created_at = created_at - interval '1 hour'`))
	again := func() (list []int64, began time.Time) {
		store.OverdueForTest(p.Hub.Out)
		began = time.Now()
		out, err := p.Hub.Out.Again(t.Context())
		require.NoError(t, err)
		for _, o := range out {
			list = append(list, o.Seq)
		}
		return list, began
	}
	for round := range 3 {
		first, _ := again()
		require.Len(t, first, store.RelayBatch)
		require.EqualValues(t, 1, first[0])
		second, began := again()
		require.Len(t, second, behind)
		require.EqualValues(t, store.RelayBatch+1, second[0])
		require.False(t, p.Hub.Out.Due().Before(began.Add(30*time.Second<<round)), "each turn takes longer")
	}
	first, _ := again()
	require.Len(t, first, store.RelayBatch)
	require.NoError(t, p.Hub.Exec(`UPDATE confirmed SET numbers = int8multirange(int8range($1, $2))`, store.RelayBatch+1, store.RelayBatch+behind+1))
	first, _ = again()
	require.Len(t, first, store.RelayBatch, "where nothing is left behind, it begins anew at once")
	require.NoError(t, p.Hub.Exec(`UPDATE confirmed SET numbers = int8multirange(int8range($1, $2), int8range(1, 2))`, store.RelayBatch+1, store.RelayBatch+behind+1))
	first, began := again()
	require.EqualValues(t, 2, first[0], "another one is the oldest")
	require.True(t, p.Hub.Out.Due().Before(began.Add(time.Minute)))
}

// Whether a commit without an answer has happened, and what it sent, only the table knows for certain.
func TestACommitWithoutAnAnswerIsReadFromTheTable(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	s.Meet(t, store.Commands)
	p := storetest.NewProxy(t, s.URL)
	over := storetest.OpenSide(t, p.URL, 1, 2, 4)
	c := over.DB.NewCursor(s.Conn.ID)
	require.Empty(t, numbers(t, c))
	p.Lose(p.Commits() + 1)
	runs := 0

	err := over.DB.Tx(t.Context(), "asking", func(ctx context.Context, tx *store.Tx) error {
		if runs++; runs > 1 {
			return nil // it has found by itself what the first run did
		}
		tx.Send(store.Draft{Conn: s.Conn.ID, Body: &commands.Status{Task: storetest.NewID()}, Life: time.Hour})
		return tx.SendLast(ctx, &pgx.Batch{})
	})

	require.NoError(t, err)
	require.Equal(t, 2, runs)
	require.Len(t, c.Pending(), 1, "the relay is woken")
	require.Equal(t, []int64{1}, numbers(t, c))
}

// What waits in memory has a bound, however few messages it is in. The rest is read.
func TestLargeMessagesWaitInTheTable(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	c := p.Hub.Out
	message := func(seq int64, size int) store.Outgoing {
		return store.Outgoing{Conn: p.Hub.Conn.ID, Seq: seq, Envelope: make([]byte, size)}
	}
	store.StandsForTest(c, 0)

	store.HandOverForTest(c, []store.Outgoing{message(1, store.HandedBytesForTest)})
	require.Equal(t, []int64{1}, numbers(t, c), "from memory: the table is empty")
	store.HandOverForTest(c, []store.Outgoing{message(2, store.HandedBytesForTest/2)})
	store.HandOverForTest(c, []store.Outgoing{message(3, store.HandedBytesForTest/2+1)})
	require.Empty(t, numbers(t, c), "they are in the table")
	store.HandOverForTest(c, []store.Outgoing{message(2, store.HandedBytesForTest)})
	require.Equal(t, []int64{2}, numbers(t, c), "there is room again")
}

// While nothing can be sent, what was handed over is left to the table.
func TestWhatIsForgottenIsReadFromTheTable(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	require.Empty(t, numbers(t, p.Hub.Out))
	question(t, p.Hub, 2)
	require.NoError(t, p.Hub.Exec(`DELETE FROM outbox WHERE seq = 1`))

	p.Hub.Out.Forget()

	require.Equal(t, []int64{2}, numbers(t, p.Hub.Out))
}

// What is to be sent again is sent at once: Pending is sent.
func TestACursorThatGoesBackIsPending(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	question(t, p.Hub, 2)
	<-p.Hub.Out.Pending()
	require.Equal(t, []int64{1, 2}, numbers(t, p.Hub.Out))
	require.Empty(t, p.Hub.Out.Pending())

	p.Hub.Out.Rewind()

	require.Len(t, p.Hub.Out.Pending(), 1)
	require.Equal(t, []int64{1, 2}, numbers(t, p.Hub.Out))
}
