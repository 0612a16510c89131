package federation_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// forgotten returns a hub whose spoke has been restored to before the order of an agent that
// runs as far as the hub knows.
func forgotten(t *testing.T) (hub *storetest.Side, h federation.HistoryForTest) {
	t.Helper()
	p := storetest.NewPair(t)
	task := p.Order(t, nil)
	require.NoError(t, p.Hub.Exec(`UPDATE confirmed SET numbers = (SELECT int8multirange(int8range(1, last + 1)) FROM sequences)`))
	require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET state = 'running', attempt = 1, accepted_at = now(), started_at = now() WHERE task = $1`, task))
	require.NoError(t, p.Hub.Exec(`INSERT INTO inbox (id, conn, seq, kind, digest, exp, task, code, envelope) SELECT gen_random_uuid(), $1, 1, 'agent.running', '', now() + interval '1 day', $2, '', ''`, p.Hub.Conn.ID, task))
	return p.Hub, federation.NewHistoryForTest(p.Hub.DB, p.Hub.Conn, federation.Role{
		Recalled: func(context.Context, *store.Tx, store.Connection, *commands.Recalled) ([]error, error) {
			return nil, nil
		}})
}

const stillOpen = `SELECT count(*) FROM open_outbox WHERE kind = 'agent.spawn'`

// A hub and its spoke may both be restored, and the spoke have its answer from the hub's
// life between. The first word that the restored hub hears may tell already what it asked for:
// the order that the spoke was promised comes again all the same.
func TestAnOrderIsOpenedAgainBeforeTheQuestionIsClosed(t *testing.T) {
	t.Parallel()
	hub, h := forgotten(t)
	require.NoError(t, hub.Exec(`UPDATE sequences SET recall_from = 1`))

	err := h.Hear(t.Context(), hub.Peer.Key, 1, commands.Numbering{Digest: &commands.History{}, Recalled: &commands.Recalled{From: 1, Done: true}})

	require.NoError(t, err)
	require.Equal(t, 1, hub.Count(t, stillOpen))
	require.Zero(t, hub.Count(t, `SELECT recall_from FROM sequences`))
	require.True(t, h.Say(t.Context(), 1).Agrees)
}

// A restored spoke is told that an order comes again; one that was told otherwise
// ends the task. So it is told nothing while a comparison fails.
func TestAQuestionIsAnsweredBehindAComparison(t *testing.T) {
	t.Parallel()
	hub, h := forgotten(t)
	asks := commands.Numbering{Recall: 1, Digest: &commands.History{}}
	deafly(t, hub, func(ctx context.Context) {
		require.Error(t, h.Hear(ctx, hub.Peer.Key, 1, asks))
		require.Nil(t, h.Say(t.Context(), 1).Numbers.Recalled)
	})

	require.NoError(t, h.Hear(t.Context(), hub.Peer.Key, 1, asks))

	told := h.Say(t.Context(), 1).Numbers.Recalled
	require.NotNil(t, told)
	require.Len(t, told.Tasks, 1)
	require.True(t, told.Tasks[0].Comes)
}

// A spoke may be restored to the same backup once more before it has had its answer: it asks for the same
// again, over another link. What was compared on the one before says nothing of it.
func TestAQuestionIsComparedOnEachLink(t *testing.T) {
	t.Parallel()
	hub, h := forgotten(t)
	asks := commands.Numbering{Recall: 1, Digest: &commands.History{}}
	require.NoError(t, h.Hear(t.Context(), hub.Peer.Key, 1, asks))
	require.NotNil(t, h.Say(t.Context(), 1).Numbers.Recalled)

	deafly(t, hub, func(ctx context.Context) {
		require.Error(t, h.Hear(ctx, hub.Peer.Key, 2, asks))
		require.Nil(t, h.Say(t.Context(), 2).Numbers.Recalled)
	})

	require.NoError(t, h.Hear(t.Context(), hub.Peer.Key, 2, asks))
	require.NotNil(t, h.Say(t.Context(), 2).Numbers.Recalled)
}

// deafly does something while no comparison of the hub comes to its end; a comparison has until ctx ends.
func deafly(t *testing.T, hub *storetest.Side, do func(ctx context.Context)) {
	t.Helper()
	held, over, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	release := sync.OnceFunc(func() { close(over) })
	defer release()
	go func() {
		done <- hub.DB.Tx(context.Background(), "holding what is confirmed", func(ctx context.Context, q *store.Tx) error {
			_, err := q.Exec(ctx, `SELECT FROM confirmed FOR UPDATE`)
			close(held)
			<-over
			return err
		})
	}()
	<-held
	brief, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	do(brief)
	release()
	require.NoError(t, <-done)
}

// What a peer has stored may reach further than the numbers that a restored side knows. While it still asks what is held under which of its
// numbers it has not gone on above them: an honest answer waits for that, and is not taken for one that is made up.
func TestAnAnswerWaitsForTheNumbers(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	p.Order(t, nil)
	taken := 0
	h := federation.NewHistoryForTest(p.Hub.DB, p.Hub.Conn, federation.Role{
		Recalled: func(context.Context, *store.Tx, store.Connection, *commands.Recalled) ([]error, error) {
			taken++
			return nil, nil
		}})
	n := commands.Numbering{Stored: commands.Numbers{Through: 5}, Digest: &commands.History{From: 1, Until: 1, SHA256: strings.Repeat("ab", 32)},
		Recalled: &commands.Recalled{From: 1, Through: 5}}

	require.NoError(t, h.Hear(t.Context(), p.Hub.Peer.Key, 1, n))
	require.Equal(t, []int64{1}, h.Say(t.Context(), 1).Numbers.Ask)
	require.Zero(t, taken)
	require.False(t, h.Pages(), "it asks for the same again, in its own time")

	n.Held = []commands.Held{{Seq: 1, SHA256: strings.Repeat("cd", 32)}}
	require.NoError(t, h.Hear(t.Context(), p.Hub.Peer.Key, 1, n))
	require.Equal(t, 1, taken)
	require.True(t, h.Pages(), "the next page is asked for at once")

	require.NoError(t, h.Hear(t.Context(), p.Hub.Peer.Key, 1, n))
	require.Equal(t, 1, taken)
	require.False(t, h.Pages(), "a page that was taken in before is no progress")

	n.Recalled = &commands.Recalled{From: 6, Through: 1 << 40}
	require.Equal(t, commands.Validation, commands.CodeOf(h.Hear(t.Context(), p.Hub.Peer.Key, 1, n)))
	require.False(t, h.Pages())
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'message.refused' AND code = 'VALIDATION'`))
}

// A peer that makes up what it recalls is suspended with the twentieth wrong thing in a minute, and not before. That the histories differ
// is the first.
func TestWhoMakesUpPagesIsSuspended(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	require.NoError(t, p.Hub.Exec(`UPDATE sequences SET recall_from = 1`))
	h := federation.NewHistoryForTest(p.Hub.DB, p.Hub.Conn, federation.Role{
		Recalled: func(context.Context, *store.Tx, store.Connection, *commands.Recalled) ([]error, error) {
			return nil, nil
		}})
	lie := func() {
		n := commands.Numbering{Digest: &commands.History{}, Recalled: &commands.Recalled{From: 1, Through: 1 << 40}}
		require.Equal(t, commands.Validation, commands.CodeOf(h.Hear(t.Context(), p.Hub.Peer.Key, 1, n)))
	}
	suspended := func() int {
		return p.Hub.Count(t, `SELECT count(*) FROM connections WHERE state = 'suspended' AND state_by = 'self' AND state_reason LIKE 'too many messages%reaches to message%'`)
	}
	for range 18 {
		lie()
	}
	require.Zero(t, suspended())

	for n := 0; suspended() == 0; n++ {
		require.Less(t, n, 20, "where a minute begins meanwhile; else the first of them suspends it")
		lie()
	}
}

// Who makes up tasks is suspended. A suspension by a person stays his, with his reason, whatever the peer goes on to recall, and nobody is
// told of another one with each page.
func TestASuspensionByAPersonStays(t *testing.T) {
	t.Parallel()
	for by, state := range map[string]store.ConnState{"self": store.Active, "uid:7": store.Suspended} {
		p := storetest.NewPair(t)
		require.NoError(t, p.Hub.Exec(`UPDATE sequences SET recall_from = 1, last = 1000`))
		if state == store.Suspended {
			var err error
			p.Hub.Conn, err = p.Hub.DB.SetConnectionState(t.Context(), p.Hub.Conn.ID, state, "holiday", by, nil)
			require.NoError(t, err)
		}
		h := federation.NewHistoryForTest(p.Hub.DB, p.Hub.Conn, federation.Role{
			Recalled: func(ctx context.Context, tx *store.Tx, c store.Connection, _ *commands.Recalled) ([]error, error) {
				return nil, tx.CountRecalled(ctx, c.ID, 1<<20, 1<<20)
			}})

		var log strings.Builder
		h.LogTo(&log)

		for range 2 {
			err := h.Hear(t.Context(), p.Hub.Peer.Key, 1, commands.Numbering{Digest: &commands.History{}, Recalled: &commands.Recalled{From: 1, Through: 99}})
			require.ErrorAs(t, err, new(*store.TooManyRecalled))
		}

		require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM connections WHERE state = 'suspended' AND state_by = $1 AND (state_reason = 'holiday') = $2`, by, by != "self"))
		require.Equal(t, state == store.Active, strings.Contains(log.String(), "connection suspended by this instance"))
	}
}

// Orders that a peer hands back and that nobody here has given take 20 rows of the audit a minute, however many pages there are. They are no fault of
// the peer: a backup may lack the key that they were signed with.
func TestStrangeOrdersAreNotedSomeAMinute(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	require.NoError(t, p.Hub.Exec(`UPDATE sequences SET recall_from = 1, last = 1000`))
	h := federation.NewHistoryForTest(p.Hub.DB, p.Hub.Conn, federation.Role{
		Recalled: func(context.Context, *store.Tx, store.Connection, *commands.Recalled) ([]error, error) {
			return slices.Repeat([]error{commands.Refuse(signing.KeyUnknown, "no such key")}, 100), nil
		}})

	for from := int64(1); from < 1000; from += 100 {
		require.NoError(t, h.Hear(t.Context(), p.Hub.Peer.Key, 1, commands.Numbering{Digest: &commands.History{}, Recalled: &commands.Recalled{From: from, Through: from + 99}}))
	}

	require.Equal(t, 1001, p.Hub.Count(t, `SELECT recall_from FROM sequences`))
	rows := p.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'order.strange' AND code = 'KEY_UNKNOWN'`)
	require.Positive(t, rows)
	require.LessOrEqual(t, rows, 60)
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM connections WHERE state = 'active'`))
}
