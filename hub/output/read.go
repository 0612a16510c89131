package output

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Piece is what a reader gets of a log: bytes of a stream, or a mark where some
// are missing.
type Piece struct {
	Seq     int64     `json:"seq"` // position in the log behind it: reading goes on from there
	Attempt int       `json:"attempt"`
	Stream  string    `json:"stream"`
	Offset  int64     `json:"offset"` // in the stream as it was kept
	At      time.Time `json:"at"`     // of its arrival; of a mark, when the hub heard of it
	Data    []byte    `json:"data,omitempty"`
	Dropped *Dropped  `json:"dropped,omitempty"`
}

// Dropped marks output that is not in the log, at the offset of its piece.
type Dropped struct {
	By    string `json:"by"`              // "spoke" or "hub"
	Bytes int64  `json:"bytes,omitempty"` // 0: nobody knows
	From  int64  `json:"from"`            // where they were in what the agent wrote; by the hub: in what was kept
	Cut   bool   `json:"cut,omitempty"`   // the end of the stream was lost: it may have been longer
}

// Read hands the pieces of a log behind the cursor to emit, in order, and moves the cursor
// behind them. It returns done as false where the file of a segment is gone: since l was read
// that segment was dropped, and the index is to be read again. It is lost for good, and marked,
// where a later index has it, too.
func (s *Store) Read(ctx context.Context, l *store.Log, c *Cursor, emit func(Piece) error) (done bool, err error) {
	if c.After >= l.Tail {
		return true, nil
	}
	first := l.Tail
	if len(l.Segments) > 0 {
		first = l.Segments[0].Base
	}
	if c.After < first {
		if err := emitDropped(l, first, c, emit); err != nil {
			return false, err
		}
		c.After = first
	}
	for _, g := range l.Segments {
		if g.Base+g.Bytes <= c.After {
			continue
		}
		list, err := s.pieces(l.Conn, g, c.After)
		if errors.Is(err, fs.ErrNotExist) && !c.missed(g) {
			return false, nil
		}
		if err != nil {
			s.Log.ErrorContext(ctx, "reading output; the rest of its segment is left out", "id", l.Task, "err", err)
			list = append(list, Piece{Seq: g.Base + g.Bytes, Dropped: &Dropped{By: "hub", Cut: true}})
		}
		if err := emitAll(list, c, emit); err != nil {
			return false, err
		}
		c.After = g.Base + g.Bytes
	}
	return true, nil
}

// emitDropped marks what went with old segments, and the reader has not had.
func emitDropped(l *store.Log, first int64, c *Cursor, emit func(Piece) error) error {
	var list []Piece
	for _, st := range l.Streams {
		if st.Dropped == 0 {
			continue
		}
		list = append(list, Piece{Attempt: st.Attempt, Stream: st.Stream, At: l.At, Dropped: &Dropped{By: "hub", Bytes: st.Dropped}})
	}
	number(list, c.After, first)
	return emitAll(list, c, emit)
}

// number gives positions to pieces that belong together, between before and after: a reader
// who goes on from one of them that is not the last gets all of them again, and takes off
// what he has had.
func number(list []Piece, before, after int64) {
	for i := range list {
		list[i].Seq = before
	}
	if n := len(list); n > 0 {
		list[n-1].Seq = after
	}
}

func emitAll(list []Piece, c *Cursor, emit func(Piece) error) error {
	for _, p := range list {
		p, lacks := c.Had.Take(p)
		if !lacks {
			continue
		}
		if err := emit(p); err != nil {
			return err
		}
	}
	return nil
}

// pieces returns what a segment holds behind after, up to where it is damaged.
func (s *Store) pieces(conn string, g store.LogSegment, after int64) (list []Piece, err error) {
	data, err := s.load(conn, g)
	for at := g.Base; err == nil && len(data) > 0; {
		var r record
		if r, data, err = next(data); err != nil {
			break
		}
		if at += r.size(); at <= after {
			continue
		}
		var some []Piece
		some, err = r.pieces(at)
		list = append(list, some...)
	}
	return list, err
}

// pieces returns what a reader gets for a record: for an end only the marks.
func (r record) pieces(seq int64) ([]Piece, error) {
	p := Piece{Seq: seq, Attempt: r.attempt, Stream: r.stream, Offset: r.offset, At: r.at}
	if r.kind == recordData {
		p.Data = r.data
		return []Piece{p}, nil
	}
	var end commands.LogEnd
	if err := json.Unmarshal(r.data, &end); err != nil {
		return nil, errDamaged
	}
	var list []Piece
	for _, g := range end.Gaps {
		gap := p
		gap.Offset, gap.Dropped = g.At, &Dropped{By: "spoke", Bytes: g.To - g.From, From: g.From}
		list = append(list, gap)
	}
	if end.Cut {
		p.Dropped = &Dropped{By: "spoke", From: r.offset, Cut: true}
		list = append(list, p)
	}
	number(list, seq-r.size(), seq)
	return list, nil
}
