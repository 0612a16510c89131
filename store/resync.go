package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// jump is how far above the highest number that the peer has the numbers go on
// after a restore: further than any number of messages that may still be on
// their way.
const jump = 1 << 20

// lockForNumbers comes first where the numbers are locked before messages: nobody
// else may then take in, order or kill over the connection meanwhile.
const lockForNumbers = `SELECT FROM connections WHERE id = $1 FOR NO KEY UPDATE`

// An Agreement says whether the histories of the two sides of a connection agree.
type Agreement struct {
	Agrees  bool
	Differs string     // why not; "" while too little is known to say
	Ask     []int64    // messages of ours: the next comparison has to know what the peer has under these numbers
	Resend  bool       // messages that were closed are open again
	KeyLost bool       // the peer does not know the key that signs towards it any more
	KeySets []Outgoing // the next of those that tell it, where both agree but for that
	Told    int        // rows of the audit that say what was changed
	Untold  int        // those that there was no room for
	Settled
}

// Settled counts what comparisons did with messages of ours.
type Settled struct {
	Confirmed  int   `json:"confirmed"`  // the peer has them: they are not sent again
	Reopened   int   `json:"reopened"`   // the peer has them no more: they are sent again as they are
	Renumbered int   `json:"renumbered"` // the peer has others under their numbers: they are sent under new ones
	Base       int64 `json:"base"`       // the numbers go on after it; 0: as before
}

// Add adds what one more comparison did.
func (s *Settled) Add(more Settled) {
	s.Confirmed, s.Reopened, s.Renumbered = s.Confirmed+more.Confirmed, s.Reopened+more.Reopened, s.Renumbered+more.Renumbered
	s.Base = max(s.Base, more.Base)
}

// comparing is the state of one Compare transaction, which holds the row of the
// connection's numbers.
type comparing struct {
	db     *DB
	tx     *Tx
	conn   string
	name   string // what people here call the peer
	theirs commands.Numbering

	last, base, stored, peerBase int64
	recalls                      bool          // the peer has not said yet what it was told
	peerRestored                 bool          // since the last comparison, or it still asks what it has said
	kid                          signing.KeyID // signs towards the peer
	room                         int           // for rows of the audit
	out                          Agreement
}

// Compare holds the peer's history against ours, at the beginning of a link.
// told is the highest number of the peer's messages that it had been told to be
// stored here when it said so, -1 for all that are stored now.
//
// Where the peer has messages of ours that are unknown here, this instance was
// restored from a backup: its numbers go on above theirs, and what it had given
// used numbers to gets new ones. Messages of ours that the peer had confirmed and
// has no more are opened again. Both are harmless when they happen again. At most room
// rows of the audit say so.
func (db *DB) Compare(ctx context.Context, by Speaker, theirs commands.Numbering, told int64, room int) (Agreement, error) {
	var c *comparing
	conn := by.Conn
	err := db.Tx(ctx, "comparing the histories of a connection", func(ctx context.Context, tx *Tx) error {
		c = &comparing{db: db, tx: tx, conn: conn, theirs: theirs, room: room}
		if _, err := tx.Exec(ctx, lockForNumbers, conn); err != nil {
			return err
		}
		if err := tx.Speaks(ctx, by); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, `SELECT last, base, coalesce(upper(stored), 1) - 1, peer_base, recall_from > 0, kid, (SELECT peer_name FROM connections WHERE id = $1) FROM sequences WHERE conn = $1 FOR UPDATE`, conn).
			Scan(&c.last, &c.base, &c.stored, &c.peerBase, &c.recalls, &c.kid, &c.name)
		if err != nil {
			return err
		}
		if told < 0 {
			told = c.stored
		}
		return c.compare(ctx, told)
	})
	cursor := db.cursors.get(conn)
	if err != nil {
		if cursor != nil {
			cursor.doubt.Store(true)
		}
		return Agreement{}, err
	}
	if cursor != nil && cursor.doubt.Swap(false) {
		c.out.Resend = true
	}
	return c.out, nil
}

// audit says what was changed, while there is room for it.
func (c *comparing) audit(row AuditRow) {
	if c.out.Told == c.room {
		c.out.Untold++
		return
	}
	c.out.Told++
	c.tx.Audit(row)
}

func (c *comparing) compare(ctx context.Context, told int64) error {
	if err := c.followPeer(ctx); err != nil {
		return err
	}
	if err := c.reopen(ctx); err != nil {
		return err
	}
	if err := c.findKeyLost(ctx); err != nil {
		return err
	}
	why, known, err := c.restored(ctx)
	if err != nil {
		return err
	}
	if why != "" {
		if err := c.goOn(ctx, why); err != nil || len(c.out.Ask) > 0 {
			return err
		}
	}
	switch {
	case c.theirs.Sent < told:
		c.out.Differs = fmt.Sprintf("message %d of the peer is stored here, and the last one that it knows is %d: it was restored from a backup", told, c.theirs.Sent)
		return nil
	case len(c.theirs.Ask) > 0 || c.theirs.Recall > 0:
		c.out.Differs = "the peer was restored from a backup and asks what is stored here; it goes on by itself"
		return nil
	case c.recalls:
		c.out.Differs = "this instance was restored from a backup and asks the peer what it said since; it goes on by itself"
		return nil
	case why == "" && !known:
		return nil
	case why == "":
		n, err := confirm(ctx, c.tx, c.conn, has(c.theirs.Stored))
		if err != nil {
			return err
		}
		c.out.Confirmed += n
	}
	c.out.Agrees = !c.out.KeyLost
	return c.tellKeysAgain(ctx)
}

// followPeer notes that the peer was restored and goes on above what it had used.
func (c *comparing) followPeer(ctx context.Context) error {
	c.peerRestored = c.theirs.Recall > 0 || c.theirs.Base > c.peerBase
	if c.theirs.Base <= c.peerBase {
		return nil
	}
	if _, err := c.tx.Exec(ctx, `UPDATE sequences SET peer_base = $2 WHERE conn = $1`, c.conn, c.theirs.Base); err != nil {
		return fmt.Errorf("noting that the peer was restored: %w", err)
	}
	c.audit(AuditRow{Actor: "peer", Action: "connection.resync", Object: c.name, Code: string(commands.Resync), Conn: c.conn,
		Why: fmt.Sprintf("the peer was restored from a backup; message %d is the last one stored here, and its numbers go on after %d", c.stored, c.theirs.Base)})
	return nil
}

// reopen opens messages again that the peer had confirmed and has no more. The
// spawn of a task that was seen to start comes again only to a peer that asks what
// it has said, and will know: it must not run again. So it does from an instance that was
// restored itself: the peer has asked it before, and was told that the order comes again.
// One that ended never does.
func (c *comparing) reopen(ctx context.Context) error {
	// Held first: what pruning notes or removes at this moment is seen behind it.
	if _, err := c.tx.Exec(ctx, `SELECT FROM confirmed WHERE conn = $1 FOR NO KEY UPDATE`, c.conn); err != nil {
		return fmt.Errorf("holding what the peer has confirmed: %w", err)
	}
	var n int
	var first int64
	err := c.tx.QueryRow(ctx, reopenLost, c.conn, missing(c.theirs.Stored, c.last, c.peerRestored), commands.SpawnKind, c.theirs.Recall > 0 || c.recalls).Scan(&n, &first)
	if err != nil {
		return fmt.Errorf("opening messages again that the peer has lost: %w", err)
	}
	if n > 0 {
		c.out.Resend, c.out.Reopened = true, n
		c.audit(AuditRow{Actor: "self", Action: "connection.resync", Object: c.name, Code: string(commands.Resync), Conn: c.conn,
			Why: fmt.Sprintf("the peer has no longer %d messages that it had confirmed; they are sent again", n)})
		return c.sealReopened(ctx, first)
	}
	return nil
}

// reopenLost looks at the missing numbers alone, range by range: behind an old gap
// stands the whole history.
const reopenLost = `
	WITH lost AS (
		SELECT count(*) AS n, range_agg(int8range(o.seq, o.seq + 1)) AS numbers FROM confirmed c, unnest($2::int8multirange * c.numbers) AS r, LATERAL (
			SELECT id, seq, kind FROM outbox WHERE conn = $1 AND seq >= lower(r) AND seq < upper(r) AND exp > clock_timestamp() OFFSET 0) AS o
		WHERE c.conn = $1 AND (o.kind <> $3 OR EXISTS (SELECT FROM mirrors m WHERE m.command = o.id AND ($4 OR m.started_at IS NULL) AND NOT is_terminal(m.state)))
	), opened AS (
		UPDATE confirmed c SET numbers = c.numbers - lost.numbers FROM lost WHERE c.conn = $1 AND lost.n > 0
	), forgotten AS (
		UPDATE confirmed_before c SET numbers = c.numbers - lost.numbers FROM lost WHERE c.conn = $1 AND lost.n > 0
	) SELECT n, coalesce(lower(numbers), 0) FROM lost`

// missing is the set of our numbers up to last that are not in n. A set with so many gaps
// that not all may be told ends early, and says nothing of what is behind its end: only a
// peer that was restored may have lost some of that, and it all counts as missing then.
func missing(n commands.Numbers, last int64, restored bool) string {
	if n.Through < last && (restored || len(n.Gaps) < commands.MaxMissing) {
		n.Gaps = append(slices.Clone(n.Gaps), commands.Range{From: n.Through + 1, To: last})
	}
	return gaps(n)
}

// restored says why the peer's messages of ours show that this instance was
// restored, "" when they do not, and whether enough is known to say so.
func (c *comparing) restored(ctx context.Context) (why string, known bool, err error) {
	through, h := c.theirs.Stored.Through, c.theirs.Digest
	switch {
	case through > c.last:
		return fmt.Sprintf("the peer has stored message %d of this instance, and the last one known here is %d: this instance was restored from a backup", through, c.last), true, nil
	case h != nil && h.Base > c.base:
		return fmt.Sprintf("the peer was told that numbers of this instance go on after %d, which is not known here: this instance was restored from a backup, or another one has its key", h.Base), true, nil
	case through <= c.base:
		return "", true, nil // it has nothing that we vouch for
	case h == nil, h.Base < c.base:
		return "", false, nil // it learns our base with our next word
	case h.From == 0:
		return "", true, nil
	}
	var from int64
	var ours string
	err = c.tx.QueryRow(ctx, historyOf("outbox"), c.conn, h.From, through, gaps(c.theirs.Stored), time.UnixMilli(h.Until)).Scan(&from, &ours)
	if err != nil {
		return "", false, fmt.Errorf("comparing histories: %w", err)
	}
	if ours != h.SHA256 {
		why = fmt.Sprintf("messages %d to %d of this instance are not the ones that the peer has stored: this instance was restored from a backup", h.From, through)
	}
	return why, true, nil
}

// goOn continues the numbers above everything that the peer has, once it is
// known which of our open messages it has: those are confirmed, and the first
// one that differs and all behind it are sealed again. Else it asks.
func (c *comparing) goOn(ctx context.Context, why string) error {
	known := c.last
	if h := c.theirs.Digest; h != nil && h.From > 0 {
		known = min(known, h.From-1) // behind it the histories part somewhere
	}
	if err := recallAfter(ctx, c.tx, c.conn, known, false); err != nil {
		return err
	}
	c.recalls = true
	held := map[int64]string{}
	for _, h := range c.theirs.Held {
		held[h.Seq] = h.SHA256
	}
	first, err := c.firstUnlike(ctx, held)
	if err != nil {
		return err
	}
	if len(c.out.Ask) > 0 {
		c.out.Differs = why
		return nil
	}
	base := max(c.last, c.theirs.Stored.Through, c.peersBase()) + jump
	n := 0
	if first > 0 {
		if n, err = c.renumber(ctx, first, base); err != nil {
			return err
		}
	}
	if err := closeUnused(ctx, c.tx, c.conn, base); err != nil {
		return err
	}
	if _, err := c.tx.Exec(ctx, `UPDATE sequences SET base = $2, last = $2::bigint + $3 WHERE conn = $1`, c.conn, base, n); err != nil {
		return fmt.Errorf("going on above the numbers that the peer has: %w", err)
	}
	c.out.Resend, c.out.Renumbered, c.out.Base = true, n, base
	c.audit(AuditRow{Actor: "self", Action: "connection.resync", Object: c.name, Code: string(commands.Resync), Conn: c.conn,
		Why: fmt.Sprintf("%s; numbers go on after %d, and %d messages that were not sent yet got new ones", why, base, n)})
	return nil
}

// peersBase is where our numbers go on as far as the peer was told.
func (c *comparing) peersBase() int64 {
	if c.theirs.Digest == nil {
		return 0
	}
	return c.theirs.Digest.Base
}

// firstUnlike finds the first open message of ours under whose number the peer
// has another one, 0 for none, and closes those that it has. While it does not
// know enough it fills out.Ask.
func (c *comparing) firstUnlike(ctx context.Context, held map[int64]string) (int64, error) {
	rows, err := c.tx.Query(ctx, `SELECT o.seq, encode(o.digest, 'hex'), o.exp < clock_timestamp() FROM confirmed c, unnest($2::int8multirange - c.numbers) AS r, LATERAL (
			SELECT seq, digest, exp FROM outbox WHERE conn = $1 AND seq >= lower(r) AND seq < upper(r) ORDER BY seq LIMIT $3) AS o
		WHERE c.conn = $1 ORDER BY o.seq LIMIT $3`,
		c.conn, has(c.theirs.Stored), len(held)+commands.MaxAsk)
	if err != nil {
		return 0, fmt.Errorf("looking for messages with used numbers: %w", err)
	}
	var seq, first int64
	var digest string
	var expired bool
	var same, over []int64
	_, err = pgx.ForEachRow(rows, []any{&seq, &digest, &expired}, func() error {
		theirs, known := held[seq]
		switch {
		case first > 0:
		case known && theirs == digest:
			same = append(same, seq)
		case expired && (!known || theirs == nothing): // nobody takes it any more
			over = append(over, seq)
		case known:
			first = seq
		case len(c.out.Ask) < commands.MaxAsk:
			c.out.Ask = append(c.out.Ask, seq)
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("looking for messages with used numbers: %w", err)
	}
	if first > 0 {
		c.out.Ask = nil // everything behind it differs too
	}
	if c.out.Confirmed, err = confirm(ctx, c.tx, c.conn, multirange(same)); err != nil {
		return 0, err
	}
	_, err = confirm(ctx, c.tx, c.conn, multirange(over))
	return first, err
}

// renumber seals all open messages from number first on again, behind base, and
// returns how many they are.
func (c *comparing) renumber(ctx context.Context, first, base int64) (int, error) {
	return c.db.sealAgain(ctx, c.tx, c.conn, c.kid, first, func(i int, _ int64) int64 { return base + int64(i) + 1 })
}

// closeUnused counts our numbers up to base as confirmed that no message has: none will have
// them any more, and a gap that nothing closes would take room in the set for ever.
func closeUnused(ctx context.Context, tx *Tx, conn string, base int64) error {
	_, err := tx.Exec(ctx, `UPDATE confirmed SET numbers = numbers + (int8multirange(int8range(1, $2::bigint + 1))
		- coalesce((SELECT range_agg(int8range(o.seq, o.seq + 1)) FROM open_outbox o WHERE o.conn = $1 AND o.seq <= $2), '{}')) WHERE conn = $1`, conn, base)
	if err != nil {
		return fmt.Errorf("closing the numbers that no message has: %w", err)
	}
	return nil
}
