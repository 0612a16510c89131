package transport

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Most bounds a batch of messages. Bytes counts what travels: bodies, headers
// and subjects.
type Most struct {
	Messages int // at least 1
	Bytes    int // default 1 MiB; at least 0.6 MiB, the largest message must fit; at most 6 MiB
}

const leastBytes = 600 << 10

func (m Most) check() (Most, error) {
	if m.Messages < 1 {
		return m, fmt.Errorf("batches of at most %d messages are empty", m.Messages)
	}
	m.Bytes = min(max(cmp.Or(m.Bytes, 1<<20), leastBytes), pullMost)
	return m, nil
}

// A mailbox takes in what one connection brings for all the queues that are read over
// it. It is one subscription: a server allows a connection a few dozen, and a
// hub reads two queues per peer.
type mailbox struct {
	nc     *nats.Conn
	prefix string // of the subjects on which the server answers

	mu   sync.Mutex
	open map[string]*queue // by stream and consumer
}

func newMailbox(nc *nats.Conn) (*mailbox, error) {
	b := &mailbox{nc: nc, prefix: nc.NewInbox() + ".", open: map[string]*queue{}}
	sub, err := nc.Subscribe(b.prefix+">", b.take)
	if err == nil {
		err = sub.SetPendingLimits(-1, -1) // what was asked for is the limit
	}
	if err != nil {
		return nil, fmt.Errorf("listening for messages: %w", err)
	}
	return b, nil
}

// take sorts one message. A status names its queue in its subject, a message of
// a stream in its reply subject. What nobody reads, or did not ask for, is
// given back.
func (b *mailbox) take(m *nats.Msg) {
	var key string
	if rest, ok := strings.CutPrefix(m.Subject, b.prefix); ok {
		key = rest[:max(strings.LastIndexByte(rest, '.'), 0)]
	} else if meta, err := m.Metadata(); err == nil {
		key = meta.Stream + "." + meta.Consumer
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if q := b.open[key]; q != nil {
		select {
		case q.in <- m:
			return
		default:
		}
	}
	b.giveBack(m)
}

// giveBack has the server hand on a message again. It does nothing to a status.
func (b *mailbox) giveBack(m *nats.Msg) {
	if m.Reply != "" {
		_ = b.nc.Publish(m.Reply, []byte("-NAK")) // fails with the connection; the acknowledgement times out then
	}
}

// A queue is the reading end of one durable consumer over one connection.
type queue struct {
	conn  *natsConn
	key   string
	in    chan *nats.Msg
	pulls int // so far
}

var errTaken = errors.New("somebody else reads it already")

// open starts reading a consumer, in pulls of at most so many messages. Nobody
// else may read it over this connection.
func (l *natsConn) open(stream, consumer string, most int) (*queue, error) {
	l.boxOnce.Do(func() { l.box, l.boxErr = newMailbox(l.nc) })
	if l.boxErr != nil {
		return nil, l.boxErr
	}
	q := &queue{conn: l, key: stream + "." + consumer, in: make(chan *nats.Msg, most+8)}
	l.box.mu.Lock()
	defer l.box.mu.Unlock()
	if l.box.open[q.key] != nil {
		return nil, errTaken
	}
	l.box.open[q.key] = q
	return q, nil
}

// close gives back what came and was not taken out.
func (q *queue) close() {
	box := q.conn.box
	box.mu.Lock()
	defer box.mu.Unlock()
	delete(box.open, q.key)
	for {
		select {
		case m := <-q.in:
			box.giveBack(m)
		default:
			return
		}
	}
}

// pull waits for a message and returns with it what else is there, up to most;
// more says that there is more than that. Nothing comes after it returned
// without an error. When nothing came within wait it returns nothing. With an
// error it may return messages too.
func (q *queue) pull(ctx context.Context, most Most, wait time.Duration) (got []delivery, more bool, err error) {
	reply, err := q.ask(most, wait)
	if err != nil {
		return nil, false, err
	}
	// The server answers every request. One that is not answered was lost, with
	// the consumer or in a server that is stuck.
	silence := time.NewTimer(wait + callTimeout)
	defer silence.Stop()
	for bytes := 0; len(got) < most.Messages && bytes < most.Bytes; {
		select {
		case <-ctx.Done():
			return got, false, context.Cause(ctx)
		case <-q.conn.gone:
			return got, false, nats.ErrConnectionClosed
		case <-silence.C:
			return got, false, errors.New("the server does not answer")
		case m := <-q.in:
			if strings.HasPrefix(m.Subject, q.conn.box.prefix) {
				if m.Subject != reply {
					continue // of an earlier pull
				}
				more, err := ending(m)
				return got, more, err
			}
			got, bytes = append(got, delivered(m)), bytes+m.Size()
			silence.Reset(wait + callTimeout)
		}
	}
	return got, true, nil
}

// arrived waits until there is something, which it leaves where it is: what is
// there is larger than the one byte it asks for.
func (q *queue) arrived(ctx context.Context, wait time.Duration) (bool, error) {
	_, more, err := q.pull(ctx, Most{Messages: 1, Bytes: 1}, wait)
	return more, err
}

// ask sends the request of a pull and returns the subject of its statuses.
func (q *queue) ask(most Most, wait time.Duration) (reply string, err error) {
	q.pulls++
	reply = q.conn.box.prefix + q.key + "." + strconv.Itoa(q.pulls)
	// With no_wait the server ends the request when it has handed on what is
	// there. With expires it waits for one message before.
	body, err := json.Marshal(struct {
		Batch    int           `json:"batch"`
		MaxBytes int           `json:"max_bytes"`
		Expires  time.Duration `json:"expires,omitempty"`
		NoWait   bool          `json:"no_wait"`
	}{most.Messages, most.Bytes, wait, true})
	if err == nil {
		err = q.conn.nc.PublishRequest(q.conn.api+".CONSUMER.MSG.NEXT."+q.key, reply, body)
	}
	if err != nil {
		return "", fmt.Errorf("asking for messages: %w", err)
	}
	return reply, nil
}

// ending reads the status that ended a pull: nothing there, more there than
// fits, or the reason why there is no reading this queue.
func ending(m *nats.Msg) (more bool, err error) {
	code, text := m.Header.Get("Status"), m.Header.Get("Description")
	switch {
	case code == "404" || code == "408":
		return false, nil
	case code == "409" && (strings.Contains(text, "MaxBytes") || text == "Batch Completed"):
		return true, nil
	case code == "503":
		return false, errors.New("there is no such queue now")
	}
	return false, fmt.Errorf("the server refuses: %s %s", code, text)
}
