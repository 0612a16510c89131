package messages_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/scale"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store/messages"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func saying(from, to, payload string) messages.Message {
	return messages.Message{Workspace: "main", From: from, To: to, Type: "x-test", Payload: payload, By: "test"}
}

func publish(t testing.TB, l *messages.Log, m messages.Message) messages.Message {
	t.Helper()
	m, _, err := l.Publish(t.Context(), m)
	require.NoError(t, err)
	return m
}

func poll(t testing.TB, l *messages.Log, reader string) []messages.Message {
	t.Helper()
	p, err := l.Poll(t.Context(), "main", reader, 100, time.Time{})
	require.NoError(t, err)
	return p.Messages
}

func seqs(list []messages.Message) (out []int64) {
	for _, m := range list {
		out = append(out, m.Seq)
	}
	return out
}

func TestAMessageIsStoredOnce(t *testing.T) {
	t.Parallel()
	l := messages.Open(storetest.NewSide(t, 1, 2).DB)
	m := saying("alice", "bob", `{"b": 1,  "a": "ü"}`)
	m.ID = storetest.NewID()
	first := publish(t, l, m)
	require.Equal(t, `{"a":"ü","b":1}`, first.Payload)

	m.Payload = `{"a":"\u00fc","b":1}`
	again, known, err := l.Publish(t.Context(), m)

	require.NoError(t, err)
	require.True(t, known)
	require.Equal(t, first, again)
	m.Payload = `{"a":"ü","b":2}`
	_, _, err = l.Publish(t.Context(), m)
	require.Equal(t, commands.Conflict, commands.CodeOf(err))
	require.Equal(t, first.Seq+1, publish(t, l, saying("alice", "", "1")).Seq, "what is refused takes no number")
}

func TestWhatIsNoMessage(t *testing.T) {
	t.Parallel()
	l := messages.Open(storetest.NewSide(t, 1, 2).DB)
	for want, change := range map[string]func(m *messages.Message){
		"no type of": func(m *messages.Message) { m.Type = "hello" },
		"no JSON":    func(m *messages.Message) { m.Payload = "{" },
		"takes 4096": func(m *messages.Message) { m.Payload = `"` + strings.Repeat("x", 4095) + `"` },
		"no name":    func(m *messages.Message) { m.To = "a b" },
		"not both":   func(m *messages.Message) { m.Blob = "sha256-" + fmt.Sprintf("%064x", 1) },
		"no blob":    func(m *messages.Message) { m.Payload, m.Blob = "", "sha256-"+fmt.Sprintf("%064x", 1) },
		"one line":   func(m *messages.Message) { m.Correlation = "a\nb" },
		"is a UUID":  func(m *messages.Message) { m.ID = "1" },
	} {
		m := saying("alice", "bob", "1")
		change(&m)
		_, _, err := l.Publish(t.Context(), m)
		require.ErrorContains(t, err, want)
	}
	require.Empty(t, poll(t, l, "bob"))
}

func TestOnlyAnAcknowledgementMovesAReader(t *testing.T) {
	t.Parallel()
	l := messages.Open(storetest.NewSide(t, 1, 2).DB)
	own, other, all := publish(t, l, saying("alice", "bob", "1")), publish(t, l, saying("alice", "eve", "2")), publish(t, l, saying("alice", "", "3"))
	want := []int64{own.Seq, all.Seq}
	require.Equal(t, want, seqs(poll(t, l, "bob")))
	require.Equal(t, want, seqs(poll(t, l, "bob")), "to be given is not to acknowledge")

	_, err := l.Ack(t.Context(), "main", "bob", all.Seq+1)
	require.Equal(t, commands.Conflict, commands.CodeOf(err), "nobody acknowledges what he was not given")
	r, err := l.Ack(t.Context(), "main", "bob", own.Seq)
	require.NoError(t, err)
	require.Equal(t, own.Seq, r.Acked)
	require.Equal(t, []int64{all.Seq}, seqs(poll(t, l, "bob")))
	_, err = l.Ack(t.Context(), "main", "bob", all.Seq)
	require.NoError(t, err)
	r, err = l.Ack(t.Context(), "main", "bob", own.Seq)
	require.NoError(t, err)
	require.Equal(t, all.Seq, r.Acked, "it never goes back")
	require.Empty(t, poll(t, l, "bob"))
	require.Equal(t, []int64{other.Seq, all.Seq}, seqs(poll(t, l, "eve")), "each has his own")
	_, err = l.Ack(t.Context(), "other", "bob", 1)
	require.Equal(t, commands.NotFound, commands.CodeOf(err))
}

func TestAPoisonousMessageStopsNobody(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	l := messages.Open(s.DB)
	l.Pause = 0
	bad, good := publish(t, l, saying("alice", "bob", "1")), publish(t, l, saying("alice", "bob", "2"))
	want := []int64{bad.Seq, good.Seq}
	for range messages.MaxTries {
		require.Equal(t, want, seqs(poll(t, l, "bob")), "what has failed comes alone")
		want = want[:1]
		_, err := l.Fail(t.Context(), "main", "bob", good.Seq, "out of turn")
		require.Equal(t, commands.Conflict, commands.CodeOf(err))
		_, err = l.Fail(t.Context(), "main", "bob", bad.Seq, "it is\nbad")
		require.NoError(t, err)
	}
	require.Equal(t, []int64{good.Seq}, seqs(poll(t, l, "bob")))
	dead, err := l.Dead(t.Context(), "main", "bob", 10)
	require.NoError(t, err)
	require.Len(t, dead, 1)
	require.Equal(t, bad.Seq, dead[0].Seq)
	require.Equal(t, messages.MaxTries, dead[0].Tries)
	require.Equal(t, "it is bad", dead[0].Why)

	_, err = l.RetryDead(t.Context(), "main", "bob", bad.Seq, "test")
	require.NoError(t, err)
	list := poll(t, l, "bob")
	require.Equal(t, []int64{bad.Seq, good.Seq}, seqs(list))
	require.True(t, list[0].Again)
	_, err = l.Fail(t.Context(), "main", "bob", bad.Seq, "still")
	require.NoError(t, err)
	require.Equal(t, []int64{good.Seq}, seqs(poll(t, l, "bob")))
	_, err = l.RetryDead(t.Context(), "main", "bob", bad.Seq, "test")
	require.NoError(t, err)
	poll(t, l, "bob")
	r, err := l.Ack(t.Context(), "main", "bob", bad.Seq)
	require.NoError(t, err)
	require.Equal(t, bad.Seq, r.Acked)
	dead, err = l.Dead(t.Context(), "main", "", 10)
	require.NoError(t, err)
	require.Empty(t, dead)

	l.Within = 20 * time.Millisecond // who says nothing fails, too
	given := 0
	for ; len(poll(t, l, "bob")) > 0; given++ {
		time.Sleep(2 * l.Within)
	}
	require.LessOrEqual(t, given, messages.MaxTries)
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM message_dead WHERE seq = $1 AND tries = $2`, good.Seq, messages.MaxTries))
	require.NoError(t, l.DropDead(t.Context(), "main", "bob", good.Seq, "test"))
	require.Equal(t, commands.NotFound, commands.CodeOf(l.DropDead(t.Context(), "main", "bob", good.Seq, "test")))
}

// Whoever has read up to a number never misses a lower one that is committed later: while one who adds messages has not committed, nobody adds any.
func TestNoMessageComesLate(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	l := messages.Open(s.DB)
	slow, err := pgx.Connect(t.Context(), pgtest.Admin(s.URL))
	require.NoError(t, err)
	defer slow.Close(context.Background())
	tx, err := slow.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT * FROM publish_messages('{main}', $1, '{slow}', '{""}', '{x-test}', '{""}', '{null}', '{1}', '{""}', '{test}', 10, 10, 1000, 1000, 1000)`, []string{storetest.NewID()})
	require.NoError(t, err)
	quick := make(chan messages.Message, 1)
	go func() {
		m, _, err := l.Publish(context.WithoutCancel(t.Context()), saying("quick", "", "2"))
		if err == nil {
			quick <- m
		}
	}()
	select {
	case m := <-quick:
		require.Fail(t, "message came before one with a lower number", "%d", m.Seq)
	case <-time.After(300 * time.Millisecond):
	}
	require.Empty(t, poll(t, l, "bob"))
	require.NoError(t, tx.Commit(t.Context()))
	later := <-quick

	require.Equal(t, []int64{later.Seq - 1, later.Seq}, seqs(poll(t, l, "bob")))
}

// Sessions of readers are killed at random. Each reads all that is for it, in order, and acknowledges each once.
func TestReadersMissNothing(t *testing.T) {
	t.Parallel()
	const publishers, readers = 4, 4
	each := scale.Larger(t, "SPAWNMESH_MESSAGES", 1_000, 25_000)
	s := storetest.NewSide(t, 1, 2)
	url := s.URL
	var over atomic.Bool
	var killed atomic.Int64
	go kill(t.Context(), url, &over, &killed)

	var sent [publishers]int
	var group errgroup.Group
	for p := range publishers {
		l := messages.Open(storetest.OpenSide(t, url, 1, 2, 4).DB)
		group.Go(func() error {
			var some errgroup.Group
			some.SetLimit(32)
			for i := range each {
				to := ""
				if i%2 == 1 {
					to = fmt.Sprint("reader-", i/2%readers)
				}
				some.Go(func() error {
					_, _, err := l.Publish(context.Background(), saying(fmt.Sprint("publisher-", p), to, fmt.Sprint(i)))
					return err
				})
			}
			sent[p] = each
			return some.Wait()
		})
	}
	read := make([][]int64, readers)
	var reading errgroup.Group
	perReader := publishers * (each/2 + each/2/readers)
	for r := range readers {
		l := messages.Open(storetest.OpenSide(t, url, 1, 2, 4).DB)
		reading.Go(func() error {
			name, last := fmt.Sprint("reader-", r), int64(0)
			for until := time.Now().Add(5 * time.Minute); len(read[r]) < perReader && time.Now().Before(until); {
				p, err := l.Poll(context.Background(), "main", name, 100, time.Now().Add(time.Second))
				if err != nil {
					return err
				}
				n := rand.IntN(len(p.Messages) + 1) // what is not acknowledged comes again
				for _, m := range p.Messages[:n] {
					if m.Seq <= last {
						return fmt.Errorf("%s was given message %d after %d", name, m.Seq, last)
					}
					read[r], last = append(read[r], m.Seq), m.Seq
				}
				if n > 0 {
					if _, err := l.Ack(context.Background(), "main", name, last); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	require.NoError(t, reading.Wait())
	over.Store(true)

	require.Equal(t, publishers*each, s.Count(t, `SELECT count(*) FROM messages`))
	require.Equal(t, publishers*each, s.Count(t, `SELECT max(seq) FROM messages`))
	for r := range readers {
		require.Equal(t, perReader, len(read[r]))
		require.Equal(t, perReader, s.Count(t, `SELECT count(*) FROM messages WHERE recipient IN ('', $1)`, fmt.Sprint("reader-", r)))
	}
	require.Positive(t, killed.Load())
	t.Logf("%d messages, %d sessions killed", publishers*each, killed.Load())
}

// kill ends sessions of the program at random.
func kill(ctx context.Context, url string, over *atomic.Bool, n *atomic.Int64) {
	conn, err := pgx.Connect(ctx, pgtest.Admin(url))
	if err != nil {
		return
	}
	defer conn.Close(context.Background())
	for !over.Load() && ctx.Err() == nil {
		time.Sleep(time.Duration(50+rand.IntN(200)) * time.Millisecond)
		tag, err := conn.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1) AS x`)
		if err == nil {
			n.Add(tag.RowsAffected())
		}
	}
}

// Who waits is woken by what comes, also from another process.
func TestWhoWaitsIsWoken(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	here, there := messages.Open(s.DB), messages.Open(storetest.OpenSide(t, s.URL, 1, 2, 4).DB)
	for name, from := range map[string]*messages.Log{"by this process": here, "by another one": there} {
		var took []time.Duration
		for i := range 20 {
			came := make(chan time.Time, 1)
			go func() {
				p, err := here.Poll(t.Context(), "main", "bob", 100, time.Now().Add(10*time.Second))
				if err == nil && len(p.Messages) > 0 {
					_, _ = here.Ack(t.Context(), "main", "bob", p.Messages[len(p.Messages)-1].Seq)
					came <- time.Now()
				}
			}()
			time.Sleep(100 * time.Millisecond)
			publish(t, from, saying("alice", "bob", fmt.Sprint(i)))
			stored := time.Now()
			took = append(took, max(0, (<-came).Sub(stored)))
		}
		slow := 0
		for _, d := range took {
			if d > 500*time.Millisecond {
				slow++
			}
		}
		require.LessOrEqual(t, slow, 2, "%s: %v", name, took)
		t.Logf("%s: %v", name, took)
	}
}

func TestRetentionWaitsForReaders(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	l := messages.Open(s.DB)
	prune := func() int { return s.Count(t, `SELECT prune_messages('0 seconds', 5000)`) }
	for i := range 10 {
		publish(t, l, saying("alice", "", fmt.Sprint(i)))
	}
	publish(t, l, saying("alice", "eve", "1"))
	poll(t, l, "bob")
	require.Zero(t, prune(), "somebody needs the first")
	_, err := l.Ack(t.Context(), "main", "bob", 4)
	require.NoError(t, err)
	require.Equal(t, 4, prune())
	require.Zero(t, prune())
	require.Equal(t, 7, s.Count(t, `SELECT kept FROM message_senders`))
	require.Equal(t, 7, s.Count(t, `SELECT kept FROM message_workspaces WHERE pruned = 4`))

	require.NoError(t, s.Exec(`UPDATE message_readers SET seen = now() - interval '31 days'`))
	require.Equal(t, 7, prune(), "who is away for long is waited for no more")
	_, err = l.Ack(t.Context(), "main", "bob", 5)
	require.Equal(t, commands.Conflict, commands.CodeOf(err))
	p, err := l.Poll(t.Context(), "main", "bob", 100, time.Now().Add(time.Minute))
	require.NoError(t, err)
	require.NotNil(t, p.DroppedAt, "and is told so")
	require.Zero(t, s.Count(t, `SELECT count(*) FROM message_readers WHERE dropped_at IS NOT NULL`))
}

func TestBoundsOfMessages(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	l := messages.Open(s.DB)
	l.MostOfSender, l.MostOfWorkspace, l.MostReaders, l.MostDead, l.Pause = 2, 3, 2, 1, 0
	for _, from := range []string{"alice", "alice", "bob"} {
		publish(t, l, saying(from, "", "1"))
	}
	for _, from := range []string{"alice", "bob"} {
		_, _, err := l.Publish(t.Context(), saying(from, "", "1"))
		require.Equal(t, commands.Full, commands.CodeOf(err))
	}
	require.Equal(t, 3, s.Count(t, `SELECT kept FROM message_workspaces`))
	poll(t, l, "r1")
	poll(t, l, "r2")
	_, err := l.Poll(t.Context(), "main", "r3", 1, time.Time{})
	require.Equal(t, commands.Full, commands.CodeOf(err))
	poll(t, l, messages.Agent(storetest.NewID())) // agents come and go
	require.NoError(t, s.Exec(`UPDATE message_readers SET dropped_at = now() WHERE name = 'r2'`))
	poll(t, l, "r3")
	for range 3 * messages.MaxTries { // the oldest dead letter makes room
		list := poll(t, l, "r1")
		_, err := l.Fail(t.Context(), "main", "r1", list[0].Seq, "no")
		require.NoError(t, err)
	}
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM message_dead WHERE seq = 3`))
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM message_dead`))
}

// What is kept is bounded in bytes, of payloads and of what blobs have. What retention removes makes room.
func TestBytesOfMessagesHaveBounds(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	l := messages.Open(s.DB)
	l.BytesOfWorkspace, l.BytesOfSender, l.BytesOfRecipient = 30_000, 15_000, 10_000
	digest := "sha256-" + fmt.Sprintf("%064x", 7)
	require.NoError(t, s.Exec(`INSERT INTO blobs (digest, owner, size) VALUES ($1, 'ws/main', 9000)`, digest))
	blob := func(from, to string) error {
		m := saying(from, to, "")
		m.Blob = digest
		_, _, err := l.Publish(t.Context(), m)
		return err
	}
	full := func(err error, says string) {
		t.Helper()
		require.Equal(t, commands.Full, commands.CodeOf(err))
		require.ErrorContains(t, err, says)
	}
	require.NoError(t, blob("alice", "bob"))
	full(blob("alice", "eve"), "of alice")
	full(blob("carol", "bob"), "for bob")
	publish(t, l, saying("carol", "bob", `"`+strings.Repeat("x", 990)+`"`))
	_, _, err := l.Publish(t.Context(), saying("carol", "bob", `"`+strings.Repeat("x", 20)+`"`))
	full(err, "for bob")
	require.NoError(t, blob("carol", ""))
	require.NoError(t, blob("dan", ""))
	full(blob("erin", ""), "of the workspace")
	require.Equal(t, 27_992, s.Count(t, `SELECT bytes FROM message_workspaces`))

	require.Equal(t, 4, s.Count(t, `SELECT prune_messages('0 seconds', 5000)`))
	require.Zero(t, s.Count(t, `SELECT bytes FROM message_workspaces`))
	require.Zero(t, s.Count(t, `SELECT count(*) FROM message_senders`)+s.Count(t, `SELECT count(*) FROM message_recipients`))
	require.NoError(t, blob("alice", "bob"))
}

// Who stores several messages with blobs and who holds several blobs for something else do not wait in a circle.
func TestBlobsOfMessagesAreHeldInOrder(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	low, high := "sha256-"+fmt.Sprintf("%064x", 1), "sha256-"+fmt.Sprintf("%064x", 2)
	require.NoError(t, s.Exec(`INSERT INTO blobs (digest, owner, size) VALUES ($1, 'ws/main', 1), ($2, 'ws/main', 1)`, low, high))
	conn, err := pgx.Connect(t.Context(), pgtest.Admin(s.URL))
	require.NoError(t, err)
	defer conn.Close(context.Background())
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	const hold = `SELECT FROM blobs WHERE digest = $1 FOR UPDATE`
	_, err = tx.Exec(t.Context(), hold, low)
	require.NoError(t, err)
	other, err := pgx.Connect(t.Context(), pgtest.Admin(s.URL))
	require.NoError(t, err)
	defer other.Close(context.Background())
	stored := make(chan error, 1)
	go func() {
		_, err := other.Exec(t.Context(), `SELECT publish_messages('{main,main}', $1, '{alice,alice}', '{"",""}', '{x-test,x-test}', '{"",""}', '{null,null}', '{"",""}', $2, '{test,test}', 10, 10, 1000, 1000, 1000)`,
			[]string{storetest.NewID(), storetest.NewID()}, []string{high, low})
		stored <- err
	}()
	require.Eventually(t, func() bool {
		return s.Count(t, `SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted AND a.datname = current_database()`) > 0
	}, time.Minute, 10*time.Millisecond)

	_, err = tx.Exec(t.Context(), hold, high)

	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-stored)
}

// Words of one workspace are found without those of all others.
func TestWordsAreFoundInOneWorkspace(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	l := messages.Open(s.DB)
	require.NoError(t, s.Exec(`INSERT INTO messages (seq, workspace, id, at, sender, type, payload, said_by)
		SELECT i, CASE WHEN i % 1000 = 0 THEN 'main' ELSE 'other' END, gen_random_uuid(), now(), 'alice', 'x-test', '{"says":"main common"}', 'test' FROM generate_series(1, 20000) AS i`))
	require.NoError(t, s.Exec(`ANALYZE messages`))
	list, err := l.List(t.Context(), "main", messages.Terms{Words: "common", Limit: 100})
	require.NoError(t, err)
	require.Len(t, list, 20)
	list, err = l.List(t.Context(), "main", messages.Terms{Words: "-common", Limit: 100})
	require.NoError(t, err)
	require.Empty(t, list)
	list, err = l.List(t.Context(), "main", messages.Terms{Words: "..", Limit: 100})
	require.NoError(t, err)
	require.Empty(t, list, "no words are in none")

	conn, err := pgx.Connect(t.Context(), pgtest.Admin(s.URL))
	require.NoError(t, err)
	defer conn.Close(context.Background())
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		_, err = conn.Exec(t.Context(), `SET enable_indexscan = off; SET plan_cache_mode = `+mode)
		require.NoError(t, err)
		_, err = conn.Prepare(t.Context(), mode, messages.ByWords())
		require.NoError(t, err)
		var raw []byte
		require.NoError(t, conn.QueryRow(t.Context(), `EXPLAIN (ANALYZE, TIMING OFF, BUFFERS, FORMAT JSON) EXECUTE `+mode+`('main', 30000, 100, 'common')`, pgx.QueryExecModeSimpleProtocol).Scan(&raw))
		var plans []struct{ Plan storetest.Plan }
		require.NoError(t, json.Unmarshal(raw, &plans))
		require.LessOrEqual(t, plans[0].Plan.Reads("messages"), 20.0, string(raw))
		require.Contains(t, string(raw), "messages_words")
	}
}

// A page ends before a message whose blob does not fit into it any more. What is not in the page was not given.
func TestAPageEndsBeforeWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	l := messages.Open(s.DB)
	l.Pause = 0
	var all []int64
	for i := range 20 {
		size := messages.MostOfBlob
		if i == 3 {
			size++ // its reader is told so, and given nothing of it
		}
		digest := "sha256-" + fmt.Sprintf("%064x", i)
		require.NoError(t, s.Exec(`INSERT INTO blobs (digest, owner, size) VALUES ($1, 'ws/main', $2)`, digest, size))
		m := saying("alice", "bob", "")
		m.Blob = digest
		all = append(all, publish(t, l, m).Seq)
	}
	require.Equal(t, all[:17], seqs(poll(t, l, "bob")))
	_, err := l.Ack(t.Context(), "main", "bob", all[17])
	require.Equal(t, commands.Conflict, commands.CodeOf(err))
	for range messages.MaxTries {
		_, err = l.Fail(t.Context(), "main", "bob", all[0], "no")
		require.NoError(t, err)
		poll(t, l, "bob")
	}
	_, err = l.RetryDead(t.Context(), "main", "bob", all[0], "test")
	require.NoError(t, err)
	require.Equal(t, all[:1], seqs(poll(t, l, "bob")))
	_, err = l.Ack(t.Context(), "main", "bob", all[0])
	require.NoError(t, err)
	require.Equal(t, all[1:18], seqs(poll(t, l, "bob")))
}

func TestConcurrentPublishersOfOneID(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	m := saying("alice", "", "1")
	m.ID = storetest.NewID()
	var fresh atomic.Int64
	var group sync.WaitGroup
	for range 4 {
		l := messages.Open(storetest.OpenSide(t, s.URL, 1, 2, 4).DB)
		for range 10 {
			group.Go(func() {
				if _, known, err := l.Publish(t.Context(), m); err == nil && !known {
					fresh.Add(1)
				}
			})
		}
	}
	group.Wait()
	require.EqualValues(t, 1, fresh.Load())
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM messages`))
}

// What people, programs and readers ask of many messages costs the same: each statement goes by its index.
func TestMessagesAreFoundByIndex(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	s.FindsByKeyIn(t, "main", messages.Statements()...)
	s.FindsByKey(t, `SELECT message_needed($1)`)
}
