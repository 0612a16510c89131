package output

import (
	"slices"

	"github.com/spawnmesh/spawnmesh/store"
)

// A Cursor is how far a reader of a log has got.
type Cursor struct {
	After int64 // the position behind the last piece that the reader had
	Had   Had
	gone  *store.LogSegment // its file was not there; nil: nothing was missed
}

// missed notes that the file of g is not there, and reports whether that was so before. A
// segment that was dropped is in no index that is read afterwards.
func (c *Cursor) missed(g store.LogSegment) (again bool) {
	again = c.gone != nil && c.gone.Base == g.Base
	c.gone = &g
	return again
}

// A Had is what a reader has had of each stream. The zero value is of one who has had nothing.
type Had struct {
	through map[streamKey]int64 // in the stream as it was kept
	ended   streamKey           // the stream that told marks are of
	told    []Dropped           // of the spoke, at the end of that stream
}

// Take notes that the reader gets p. It takes off what he has had: a mark of the hub names the
// bytes that he lacks. It returns false where nothing is left.
func (h *Had) Take(p Piece) (Piece, bool) {
	if p.Stream == "" {
		return p, true
	}
	key := streamKey{attempt: p.Attempt, stream: p.Stream}
	switch d := p.Dropped; {
	case d == nil:
		h.note(key, p.Offset+int64(len(p.Data)))
	case d.By == "hub":
		had, end := h.through[key], d.From+d.Bytes
		if end <= had {
			return p, false
		}
		from := max(d.From, had)
		p.Offset, p.Dropped = from, &Dropped{By: d.By, Bytes: end - from, From: from}
		h.note(key, end)
	default:
		return p, h.tell(key, *d)
	}
	return p, true
}

// note notes that a stream was had up to end, or is known to be gone.
func (h *Had) note(key streamKey, end int64) {
	if h.through == nil {
		h.through = map[streamKey]int64{}
	}
	h.through[key] = max(h.through[key], end)
}

// tell notes a mark of the spoke, and reports whether the reader has not had it. All marks of a
// stream come together, so those of one stream are enough to know.
func (h *Had) tell(key streamKey, d Dropped) (isNew bool) {
	if key != h.ended {
		h.ended, h.told = key, nil
	}
	if slices.Contains(h.told, d) {
		return false
	}
	h.told = append(h.told, d)
	return true
}
