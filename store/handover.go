package store

import (
	"cmp"
	"slices"
	"sync"

	"github.com/spawnmesh/spawnmesh/internal/wait"
)

// What a transaction has sent is handed to the cursor of its connection as soon as it is
// committed, so that the relay need not read what was written a moment ago. The table
// stays the record: a process that ends in between, a commit whose answer was lost, one of
// another process and a hand-over that there is no room for leave it to the cursor to
// read the table.

// handedBytes is how much may wait in memory for the relay of one connection.
const handedBytes = 1 << 20

// cursors are the cursors of the connections that this process serves.
type cursors struct {
	mu sync.Mutex // guards of
	of map[string]*Cursor
}

func (s *cursors) add(c *Cursor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[string]*Cursor{}
	}
	s.of[c.conn] = c
}

func (s *cursors) remove(c *Cursor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[c.conn] == c {
		delete(s.of, c.conn)
	}
}

func (s *cursors) get(conn string) *Cursor {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[conn]
}

// rereadAll has every cursor read the table: something may have been committed.
func (s *cursors) rereadAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.of {
		c.handed.reread()
		c.handed.pending.Send()
	}
}

// handOver hands committed rows to the cursors of their connections.
func (db *DB) handOver(r outboxRows) {
	lists := map[string][]Outgoing{}
	for i, conn := range r.conn {
		lists[conn] = append(lists[conn], Outgoing{ID: r.id[i], Conn: conn, Seq: r.seq[i], Queue: r.queue[i], Kind: r.kind[i], Envelope: r.envelope[i]})
	}
	for conn, list := range lists {
		if c := db.cursors.get(conn); c != nil {
			c.handed.add(list)
		}
	}
}

// A handed is what waits in memory for a cursor. It has a lock of its own: who hands over
// does not wait for a cursor that reads.
type handed struct {
	pending wait.Signal // sent when there is something to take

	mu    sync.Mutex // guards the rest
	list  []Outgoing
	bytes int
	table bool // there may be messages in the table that are not in list
}

// add waits for nobody. What there is no room for is read from the table.
func (h *handed) add(list []Outgoing) {
	defer h.pending.Send()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.table {
		return
	}
	for _, o := range list {
		h.bytes += len(o.Envelope)
	}
	if h.list = append(h.list, list...); len(h.list) > RelayBatch || h.bytes > handedBytes {
		h.list, h.bytes, h.table = nil, 0, true
	}
}

// mustRead reports whether the table is to be read.
func (h *handed) mustRead() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.table
}

// reread leaves all to the table.
func (h *handed) reread() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list, h.bytes, h.table = nil, 0, true
}

// take returns what was handed over since, in the order of the numbers, and whether the table
// has to be read.
func (h *handed) take() (list []Outgoing, table bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list, table = h.list, h.table
	h.list, h.bytes, h.table = nil, 0, false
	slices.SortFunc(list, func(a, b Outgoing) int { return cmp.Compare(a.Seq, b.Seq) })
	return list, table
}

// follows returns what of list comes after number last, and whether it does so without a gap.
// Hand-overs may come in another order than their commits; but what has a lower number
// was committed before, and so can be read.
func follows(list []Outgoing, last int64) ([]Outgoing, bool) {
	i, _ := slices.BinarySearchFunc(list, last+1, func(o Outgoing, seq int64) int { return cmp.Compare(o.Seq, seq) })
	list = list[i:]
	for i, o := range list {
		if o.Seq != last+1+int64(i) {
			return nil, false
		}
	}
	return list, true
}
