package audittree

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/signing"
)

// A Leaved is a leaf of the tree with the row that it is of. Retention removes rows; leaves stay.
type Leaved struct {
	Leaf int64
	Seq  int64
	Hash Hash
	Row  *Row // nil: it is gone
}

// A Summary says what a verification has found.
type Summary struct {
	Instance string     `json:"instance"`
	Size     int64      `json:"size"`                  // leaves that the checkpoint covers
	Later    int64      `json:"later,omitempty"`       // leaves after it, which nobody has signed
	Rows     int64      `json:"rows"`                  // that are there and are what was hashed
	Pruned   int64      `json:"pruned,omitempty"`      // that retention has removed: their hashes are there
	From     int64      `json:"from_seq,omitempty"`    // the first row that is there, and
	Since    *time.Time `json:"from_at,omitempty"`     // when it was written
	At       *time.Time `json:"checkpoint,omitempty"`  // of the checkpoint
	Kept     int        `json:"kept,omitempty"`        // checkpoints of before, or that somebody else has kept, which fit, too
	Restored *time.Time `json:"restored_at,omitempty"` // when the database was restored from a backup last, as the checkpoint says
}

// A Verification goes through the leaves of a tree in their order. The zero value is not one; see [Verify].
type Verification struct {
	Summary Summary
	marks   []Checkpoint // each holds at its size
	tree    Growing
	missing []span // numbers of rows that are gone
	gone    bool   // the last leaf has none
	pruned  int64  // the highest number that retention says it has removed
}

// A span is of leaves one behind the other.
type span struct{ lowest, highest int64 }

// Verify begins to hold a tree against checkpoints of the instance whose identity key is public, in notes. The first
// of them is its newest, the others may be of any time.
func Verify(public ed25519.PublicKey, notes ...string) (*Verification, error) {
	v := &Verification{Summary: Summary{Instance: string(signing.InstanceIDOf(public))}}
	for i, text := range notes {
		c, err := Open(text, public)
		if err != nil {
			return nil, err
		}
		if v.marks = append(v.marks, c); i > 0 {
			v.Summary.Kept++
			continue
		}
		v.Summary.Size, v.Summary.At = c.Size, &c.At
		if c.Era > 0 {
			at := time.UnixMicro(c.Era).UTC()
			v.Summary.Restored = &at
		}
	}
	return v, nil
}

// Add holds the next leaf against its row. The error says what does not fit.
func (v *Verification) Add(l Leaved) error {
	if l.Leaf != v.tree.Size {
		return fmt.Errorf("leaf %d is gone: after it comes leaf %d, of row %d", v.tree.Size, l.Leaf, l.Seq)
	}
	switch {
	case l.Row == nil:
		v.lacks(l.Seq)
	case l.Row.Seq != l.Seq || Leaf(*l.Row) != l.Hash:
		return fmt.Errorf("row %d (%s by %s) is not what it was when it became leaf %d", l.Seq, l.Row.Action, l.Row.Actor, l.Leaf)
	default:
		v.count(*l.Row)
	}
	v.gone = l.Row == nil
	v.tree.Add(l.Hash)
	for _, c := range v.marks {
		if c.Size == v.tree.Size && c.Root != v.tree.Root() {
			return fmt.Errorf("the first %d rows, up to row %d, are not those of the checkpoint of %s", c.Size, l.Seq, c.At.Format(time.RFC3339))
		}
	}
	return nil
}

func (v *Verification) lacks(seq int64) {
	if v.Summary.Pruned++; !v.gone {
		v.missing = append(v.missing, span{seq, seq})
	}
	last := &v.missing[len(v.missing)-1]
	last.lowest, last.highest = min(last.lowest, seq), max(last.highest, seq)
}

func (v *Verification) count(r Row) {
	if v.Summary.Rows++; v.Summary.Rows == 1 || r.Seq < v.Summary.From {
		v.Summary.From, v.Summary.Since = r.Seq, &r.At
	}
	if last, err := strconv.ParseInt(r.Object, 10, 64); err == nil && r.Action == "audit.pruned" && r.Actor == "self" && last < r.Seq {
		v.pruned = max(v.pruned, last)
	}
}

// End says what is missing, after the last leaf. Strays are numbers of rows that are no leaves.
func (v *Verification) End(strays []int64) error {
	for _, c := range v.marks {
		if c.Size > v.tree.Size {
			return fmt.Errorf("%d rows are gone: there are %d, and the checkpoint of %s has %d", c.Size-v.tree.Size, v.tree.Size, c.At.Format(time.RFC3339), c.Size)
		}
	}
	for _, s := range v.missing {
		if s.highest > v.pruned {
			return fmt.Errorf("rows are gone from row %d to row %d, and retention has removed none after row %d", max(s.lowest, v.pruned+1), s.highest, v.pruned)
		}
	}
	if len(strays) > 0 {
		return fmt.Errorf("row %d was put in: it is no leaf of the tree", strays[0])
	}
	v.Summary.Later = v.tree.Size - v.Summary.Size
	return nil
}

// ParseHash reads a hash from base64.
func ParseHash(text string) (h Hash, err error) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil || len(raw) != len(h) {
		return h, fmt.Errorf("%q is no hash of a tree", text)
	}
	return Hash(raw), nil
}
