package output

import (
	"context"
	"encoding/json"
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

// Read hands the pieces of a log behind position after to emit, in order, and
// returns the position that it got to.
func (s *Store) Read(ctx context.Context, l *store.Log, after int64, emit func(Piece) error) (int64, error) {
	if after >= l.Tail {
		return after, nil
	}
	first := l.Tail
	if len(l.Segments) > 0 {
		first = l.Segments[0].Base
	}
	if after < first {
		if err := emitDropped(l, first, emit); err != nil {
			return after, err
		}
		after = first
	}
	for _, g := range l.Segments {
		if g.Base+g.Bytes <= after {
			continue
		}
		list, err := s.pieces(l.Conn, g, after)
		if err != nil {
			s.Log.ErrorContext(ctx, "reading output; the rest of its segment is left out", "id", l.Task, "err", err)
			list = append(list, Piece{Seq: g.Base + g.Bytes, Dropped: &Dropped{By: "hub", Cut: true}})
		}
		for _, p := range list {
			if err := emit(p); err != nil {
				return after, err
			}
		}
		after = g.Base + g.Bytes
	}
	return after, nil
}

// emitDropped marks what went with old segments.
func emitDropped(l *store.Log, first int64, emit func(Piece) error) error {
	for _, st := range l.Streams {
		if st.Dropped == 0 {
			continue
		}
		if err := emit(Piece{Seq: first, Attempt: st.Attempt, Stream: st.Stream, At: l.At, Dropped: &Dropped{By: "hub", Bytes: st.Dropped}}); err != nil {
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
	return list, nil
}
