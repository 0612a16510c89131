package messages_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store/messages"
)

// Whoever acknowledges all before a message may say that it has failed, without polling in between.
func TestTheFirstBehindWhatIsAcknowledgedFails(t *testing.T) {
	t.Parallel()
	l := messages.Open(storetest.NewSide(t, 1, 2).DB)
	first, bad := publish(t, l, saying("alice", "bob", "1")), publish(t, l, saying("alice", "bob", "2"))
	poll(t, l, "bob")
	_, err := l.Ack(t.Context(), "main", "bob", first.Seq)
	require.NoError(t, err)

	r, err := l.Fail(t.Context(), "main", "bob", bad.Seq, "no")

	require.NoError(t, err)
	require.Equal(t, bad.Seq, r.Head)
	require.Equal(t, 1, r.Tries)
	_, err = l.Fail(t.Context(), "main", "bob", first.Seq, "no")
	require.Equal(t, commands.Conflict, commands.CodeOf(err))
}

// A reader that a message kills before it acknowledges anything loses none of those before it.
func TestOnlyThePoisonousMessageDies(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	l := messages.Open(s.DB)
	l.Within = time.Microsecond
	var all []int64
	for range 3 {
		all = append(all, publish(t, l, saying("alice", "bob", "1")).Seq)
	}
	bad := publish(t, l, saying("alice", "bob", `"bad"`)).Seq
	all = append(all, bad)

	var handled []int64
	for range 100 {
		for _, m := range poll(t, l, "bob") {
			if m.Seq == bad {
				goto killed // with what it had not acknowledged
			}
			handled = append(handled, m.Seq)
		}
		if n := len(handled); n > 0 {
			_, err := l.Ack(t.Context(), "main", "bob", handled[n-1])
			require.NoError(t, err)
		}
	killed:
	}

	require.Subset(t, handled, all[:3])
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM message_dead`))
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM message_dead WHERE seq = $1`, bad))
}

// A failure is counted once for each time that a message was given, and it comes again after 1, 2, 4 s.
func TestWhatFailsComesAgainLater(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	l := messages.Open(s.DB)
	l.Pause = 300 * time.Millisecond
	bad, good := publish(t, l, saying("alice", "bob", "1")), publish(t, l, saying("alice", "bob", "2"))
	poll(t, l, "bob")
	for tries := 1; tries <= 2; tries++ {
		failed := time.Now()
		for range messages.MaxTries {
			r, err := l.Fail(t.Context(), "main", "bob", bad.Seq, "no")
			require.NoError(t, err)
			require.Equal(t, tries, r.Tries, "it was not given again")
		}
		require.Empty(t, poll(t, l, "bob"))
		p, err := l.Poll(t.Context(), "main", "bob", 100, time.Now().Add(10*time.Second))
		require.NoError(t, err)
		require.Equal(t, []int64{bad.Seq}, seqs(p.Messages))
		require.WithinDuration(t, failed.Add(l.Pause<<(tries-1)), time.Now(), 5*time.Second)
		require.GreaterOrEqual(t, time.Since(failed), l.Pause<<(tries-1)-10*time.Millisecond)
	}
	_, err := l.Ack(t.Context(), "main", "bob", bad.Seq)
	require.NoError(t, err)
	require.Equal(t, []int64{good.Seq}, seqs(poll(t, l, "bob")))
}

// An agent begins with what comes from its first poll on, and with all that was sent to it alone. It is forgotten with the end of its task.
func TestAgentsComeAndGo(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	l := messages.Open(s.DB)
	lives, ended := storetest.NewID(), storetest.NewID()
	require.NoError(t, s.Exec(`INSERT INTO tasks (id, class) VALUES ($1, 0)`, lives))
	require.NoError(t, s.Exec(`INSERT INTO tasks (id, class, state, ended_at) VALUES ($1, 0, 'completed', now())`, ended))
	publish(t, l, saying("alice", "", "1"))
	own := publish(t, l, saying("alice", messages.Agent(lives), "2"))
	publish(t, l, saying("alice", "", "3"))

	require.Equal(t, []int64{own.Seq}, seqs(poll(t, l, messages.Agent(lives))))
	poll(t, l, messages.Agent(ended))
	poll(t, l, messages.Agent(storetest.NewID()))
	later := publish(t, l, saying("alice", "", "4"))

	require.Equal(t, []int64{own.Seq, later.Seq}, seqs(poll(t, l, messages.Agent(lives))))
	require.Equal(t, 1, s.Count(t, `SELECT prune_messages('0 seconds', 5000)`), "those that have ended need nothing")
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM message_readers`))
	require.Equal(t, []int64{own.Seq, later.Seq}, seqs(poll(t, l, messages.Agent(lives))))
}
