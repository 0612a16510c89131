package messages

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Log is that of an instance, as one process has it.
type Log struct {
	// Bounds of what is kept, and of who reads. They are set before the log is used.
	MostOfWorkspace, MostOfSender                     int64
	BytesOfWorkspace, BytesOfSender, BytesOfRecipient int64 // of payloads and blobs
	MostReaders, MostDead                             int
	// Within is how long a reader has for what it was given.
	Within time.Duration
	// Pause is how long a message waits that has failed once, and twice as long each time more.
	Pause time.Duration

	db   *store.DB
	ears ears

	mu      sync.Mutex // guards the rest
	queue   []*waiting
	storing bool // somebody stores what is queued
}

// Open returns the log in db.
func Open(db *store.DB) *Log {
	return &Log{db: db, MostOfWorkspace: 1_000_000, MostOfSender: 100_000, BytesOfWorkspace: 1 << 30, BytesOfSender: 256 << 20, BytesOfRecipient: 256 << 20, MostReaders: 1000, MostDead: 1000, Within: time.Minute, Pause: time.Second, ears: newEars()}
}

type waiting struct {
	m     Message
	known bool
	err   error
	done  chan struct{}
}

// mostAtOnce is how many messages one transaction stores.
const mostAtOnce = 256

// Publish stores a message, and returns it with its number. One that is there already with the same content is returned as it is, and known.
func (l *Log) Publish(ctx context.Context, m Message) (stored Message, known bool, err error) {
	if err := m.Prepare(); err != nil {
		return m, false, err
	}
	w := &waiting{m: m, done: make(chan struct{})}
	l.mu.Lock()
	l.queue = append(l.queue, w)
	first := !l.storing
	l.storing = true
	l.mu.Unlock()
	if first {
		go l.store(context.WithoutCancel(ctx))
	}
	select {
	case <-w.done:
		return w.m, w.known, w.err
	case <-ctx.Done():
		return m, false, fmt.Errorf("storing a message: %w: %w", commands.ErrMayBeDone, ctx.Err())
	}
}

// store stores what is queued until nothing is. What comes while it does is one transaction more.
func (l *Log) store(ctx context.Context) {
	for {
		l.mu.Lock()
		n := min(len(l.queue), mostAtOnce)
		list := l.queue[:n:n]
		l.queue = l.queue[n:]
		l.storing = n > 0
		l.mu.Unlock()
		if n == 0 {
			return
		}
		err := l.storeAll(ctx, list)
		for _, w := range list {
			if err != nil {
				w.err = err
			}
			close(w.done)
		}
	}
}

const publish = `SELECT n, outcome, number, stored FROM publish_messages($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`

// somebodyListens is asked while the last number is held: whoever begins to listen takes that first.
const somebodyListens = `SELECT EXISTS (SELECT FROM message_listeners WHERE until > clock_timestamp())`

func (l *Log) storeAll(ctx context.Context, list []*waiting) error {
	var workspaces, ids, senders, recipients, types, correlations, payloads, blobs, says []string
	var replies []*string
	for _, w := range list {
		m := &w.m
		workspaces, ids, senders, recipients, types = append(workspaces, m.Workspace), append(ids, m.ID), append(senders, m.From), append(recipients, m.To), append(types, m.Type)
		correlations, payloads, blobs, says = append(correlations, m.Correlation), append(payloads, m.Payload), append(blobs, m.Blob), append(says, m.By)
		var reply *string
		if m.InReplyTo != "" {
			reply = &m.InReplyTo
		}
		replies = append(replies, reply)
	}
	listens := false
	err := l.db.Tx(ctx, "storing messages", func(ctx context.Context, tx *store.Tx) error {
		tx.TellNobody()
		b := &pgx.Batch{}
		b.Queue(publish, workspaces, ids, senders, recipients, types, correlations, replies, payloads, blobs, says, l.MostOfWorkspace, l.MostOfSender, l.BytesOfWorkspace, l.BytesOfSender, l.BytesOfRecipient).Query(func(rows pgx.Rows) error {
			var n int
			var outcome string
			var seq int64
			var at time.Time
			_, err := pgx.ForEachRow(rows, []any{&n, &outcome, &seq, &at}, func() error {
				list[n-1].m.Seq, list[n-1].m.At, list[n-1].known, list[n-1].err = seq, at, outcome == "known", l.refused(outcome, list[n-1].m)
				return nil
			})
			return err
		})
		b.Queue(somebodyListens).QueryRow(func(row pgx.Row) error { return row.Scan(&listens) })
		return tx.SendLast(ctx, b)
	})
	if err == nil && listens {
		l.notify(ctx, written(fresh(list)))
	}
	return err
}

// refused is why a message was not stored, if it was not.
func (l *Log) refused(outcome string, m Message) error {
	full := func(format string, args ...any) error {
		return commands.Refuse(commands.Full, format, args...).
			Hinting("retention removes old ones that every live reader has acknowledged: see which reader is behind").Running("message", "reader", "list")
	}
	switch outcome {
	case "other":
		return commands.Refuse(commands.Conflict, "message %s is there with other content", m.ID).Hinting("give another message another id")
	case "blob":
		return commands.Refuse(commands.InputMissing, "there is no blob %s here", m.Blob).Hinting("send its bytes first (POST /api/v1/blobs); what nothing names is kept for a day")
	case "full":
		return full("the workspace keeps as many messages as it may")
	case "many":
		return full("as many messages of %s are kept as may be", m.From)
	case "large":
		return full("the messages of the workspace have as many bytes as it keeps, which is %s", commands.SizeInWords(l.BytesOfWorkspace))
	case "much":
		return full("the messages of %s that are kept have as many bytes as may be, which is %s", m.From, commands.SizeInWords(l.BytesOfSender))
	case "mailbox":
		return full("the messages for %s that are kept have as many bytes as may be, which is %s", m.To, commands.SizeInWords(l.BytesOfRecipient))
	}
	return nil
}

// fresh is whom messages that were stored now are for.
func fresh(list []*waiting) map[address]bool {
	out := map[address]bool{}
	for _, w := range list {
		if w.err == nil && !w.known {
			out[address{w.m.Workspace, w.m.To}] = true
		}
	}
	return out
}

// notify wakes who waits, after the commit: one that is lost costs a waiter at most [between]. Nobody waits for the disk.
func (l *Log) notify(ctx context.Context, whom string) {
	_ = l.db.Read(ctx, "telling who waits for messages", func(ctx context.Context, c *pgxpool.Conn) error {
		_, err := c.Exec(ctx, `SELECT pg_notify($1, $2) FROM set_config('synchronous_commit', 'off', true)`, channel, whom)
		return err
	})
}
