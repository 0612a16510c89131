package federation

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// HistoryForTest is an exchange of which only histories are heard and said.
type HistoryForTest struct {
	x    *Exchange
	Sent *[]int64 // the numbers of what was published
	Full *bool    // the queue of what starts work has no room
}

// NewHistoryForTest returns the exchange of a connection in db that nothing waits for on the way.
func NewHistoryForTest(db *store.DB, c store.Connection, r Role) HistoryForTest {
	sent, full := &[]int64{}, new(bool)
	x := newExchange(&Board{DB: db, Log: slog.New(slog.DiscardHandler)}, &Peer{Connection: c}, &role{Role: r}, empty{sent: sent, full: full})
	return HistoryForTest{x, sent, full}
}

// empty is a way on which nothing is, and that takes what is published.
type empty struct {
	way
	sent *[]int64
	full *bool
}

func (e empty) publish(_ context.Context, list []store.Outgoing) []error {
	errs := make([]error, len(list))
	for i, o := range list {
		if *e.full && o.Queue == commands.QueueRun {
			errs[i] = transport.ErrQuota
			continue
		}
		*e.sent = append(*e.sent, o.Seq)
	}
	return errs
}

func (empty) waiting(context.Context) (int, error) { return 0, nil }

func (empty) link() int64 { return 1 }

func (empty) holder() string { return "test" }

// Hear takes in what the peer says of its history on a link.
func (h HistoryForTest) Hear(ctx context.Context, kid signing.KeyID, link int64, n commands.Numbering) error {
	v := commands.ConnectionView{Numbers: &n}
	h.x.mu.Lock()
	h.x.beat = &store.Beat{Body: commands.Heartbeat{Connection: v}}
	h.x.mu.Unlock()
	return h.x.compare(ctx, h.x.peer.Load(), v, link, signing.Header{Kid: kid})
}

// Compare takes in what a heartbeat says of the connection.
func (h HistoryForTest) Compare(ctx context.Context, kid signing.KeyID, link int64, v commands.ConnectionView) error {
	return h.x.compareBeat(ctx, h.x.peer.Load(), &store.Incoming{Header: signing.Header{Kid: kid}}, v, link)
}

// Relay sends what is due, and returns when something is sent again; zero = never, as things are.
func (h HistoryForTest) Relay(ctx context.Context) (time.Time, error) {
	_, err := h.x.relayOnce(ctx)
	return h.x.cursor.Due(), err
}

// Say returns what the peer is told then.
func (h HistoryForTest) Say(ctx context.Context, link int64) commands.ConnectionView {
	var beat commands.Heartbeat
	h.x.sayHistory(ctx, link, &beat)
	return beat.Connection
}

// TellsLater lets the peer be told the keys again that it was told.
func (h HistoryForTest) TellsLater() { h.x.keysTold = time.Time{} }

// StaysLost reports whether the peer is said not to take our keys.
func (h HistoryForTest) StaysLost() bool { return h.x.staysLost() }

// LogTo has what happens logged there.
func (h HistoryForTest) LogTo(w io.Writer) {
	h.x.log = slog.New(slog.NewTextHandler(w, nil))
	h.x.board.Log = h.x.log
}

// Refuse notes that the database has refused what is signed with kid, and returns what the peer is told of that.
func (h HistoryForTest) Refuse(ctx context.Context, kid signing.KeyID, r *commands.Refused) (*commands.EndedKey, error) {
	err := h.x.refuseKey(ctx, h.x.peer.Load(), &store.Incoming{Header: signing.Header{Kid: kid}}, r)
	return h.x.lapsedKey(), err
}

// ReconcileForTest follows the table of connections once, and reports whether nothing has to be looked at soon.
func ReconcileForTest(ctx context.Context, b *Board) (settled bool, err error) {
	return b.reconcile(ctx)
}

// WatchForTest follows what is written to the database until ctx ends.
func WatchForTest(ctx context.Context, b *Board) error { return b.watch(ctx) }

// WakeForTest is sent when the table of connections is to be read.
func WakeForTest(b *Board) <-chan struct{} { return b.wake }

// ChangedLinkForTest is told of each change of a link that b dials.
func ChangedLinkForTest(b *Board, conn string) func(transport.LinkState) { return b.changedLink(conn) }

// Pages reports whether one of the sides says at once what it has more to recall.
func (h HistoryForTest) Pages() bool { return h.x.pages() }

// ResumeLeaseForTest hears the peer of a connection that is known as c.
func ResumeLeaseForTest(ctx context.Context, db *store.DB, c store.Connection) error {
	return (&Board{DB: db, Log: slog.New(slog.DiscardHandler)}).resumeLease(ctx, &Peer{Connection: c})
}
