package conformance

import (
	"bytes"
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

func historyRules() []Rule {
	return []Rule{
		joining("join-histories"),
		{"digest", "7.6", "tells the digest of the hub's messages that it has stored, on a new link", (*trial).tellsDigest},
		{"held", "7.6", "answers ask with the digests of the messages that it has under these numbers, and of no others", (*trial).tellsHeld},
		{"recalled", "7.6", "answers recall with the spawns that it has stored from there on, and is done", (*trial).tellsRecalled},
		{"recalled-none", "7.6", "answers a recall of numbers that it has not with done and nothing else", (*trial).recallsNothing},
		{"base", "7.6", "takes numbers from a new base of the hub on, and uses it in its digest", (*trial).takesBase},
		{"void", "7.6", "goes on when the hub names numbers that no message has, and takes a message that comes under one", (*trial).takesVoid},
		{"refused", "7.2", "goes on when the hub has refused a report, or stores no more", (*trial).takesRefused},
	}
}

// compared makes both sides compare on a new link, with the hub in a mood.
func (t *trial) compared(change func(*mood)) (time.Time, error) {
	begun := time.Now()
	t.set(change)
	t.proxy.Reset()
	return begun, t.complaints()
}

// told waits for what a heartbeat says of its numbers.
func (t *trial) told(after time.Time, ok func(*commands.Numbering) bool, format string, args ...any) (n *commands.Numbering, err error) {
	err = t.beaten(after, func(b *commands.Heartbeat) bool {
		if b.Connection.Numbers != nil && ok(b.Connection.Numbers) {
			n = b.Connection.Numbers
		}
		return n != nil
	}, format, args...)
	return n, err
}

func (t *trial) tellsDigest() error {
	for range 3 {
		if err := t.passed(); err != nil {
			return err
		}
	}
	begun, err := t.compared(func(*mood) {})
	if err != nil {
		return err
	}
	n, err := t.told(begun, func(n *commands.Numbering) bool { return n.Digest != nil }, "a heartbeat with a digest on a new link")
	if err != nil {
		return err
	}
	if sent := t.Seq.Load(); n.Stored.Through != sent || len(n.Stored.Gaps) > 0 || n.Digest.From != 1 {
		return fmt.Errorf("expected stored through %d without gaps, and a digest from 1; got %+v, from %d", sent, n.Stored, n.Digest.From)
	}
	if err := t.agreed(begun); err != nil {
		return err
	}
	return t.complaints()
}

func (t *trial) tellsHeld() error {
	s, err := t.completes(noop())
	if err != nil {
		return err
	}
	begun, err := t.compared(func(m *mood) { m.ask = []int64{s.Seq, s.Seq + 5} })
	if err != nil {
		return err
	}
	defer t.set(func(m *mood) { m.ask = nil })
	n, err := t.told(begun, func(n *commands.Numbering) bool { return n.Held != nil }, "a heartbeat with held")
	if err != nil {
		return err
	}
	if len(n.Held) != 1 || n.Held[0].Seq != s.Seq || n.Held[0].SHA256 != s.Digest.String() {
		return fmt.Errorf("expected held with number %d and digest %s only; got %+v", s.Seq, s.Digest, n.Held)
	}
	t.set(func(m *mood) { m.ask = nil })
	return t.agreed(time.Now())
}

// recalls asks for what the spoke has from a number on, and returns what it tells.
func (t *trial) recalls(from int64) (*commands.Recalled, error) {
	begun, err := t.compared(func(m *mood) { m.recall = from })
	if err != nil {
		return nil, err
	}
	defer t.set(func(m *mood) { m.recall = 0 })
	n, err := t.told(begun, func(n *commands.Numbering) bool { return n.Recalled != nil && n.Recalled.From == from }, "a heartbeat with recalled from %d", from)
	if err != nil {
		return nil, err
	}
	return n.Recalled, nil
}

func (t *trial) tellsRecalled() error {
	var list []signing.Sealed
	for range 3 {
		s, err := t.completes(noop())
		if err != nil {
			return err
		}
		list = append(list, s)
	}
	refused, err := t.order(&commands.Status{Task: list[0].ID}, nil)
	if err != nil {
		return err
	}
	if _, err := t.refusal(refused.ID, commands.UnknownTask); err != nil {
		return err
	}
	from := list[1].Seq
	r, err := t.recalls(from)
	if err != nil {
		return err
	}
	if !r.Done || r.Through < list[2].Seq || len(r.Orders) != 2 || !bytes.Equal(r.Orders[0], list[1].Envelope) || !bytes.Equal(r.Orders[1], list[2].Envelope) {
		return fmt.Errorf("expected done, through %d or more, and the two spawns from %d on as they were signed; got done %t, through %d, %d orders", list[2].Seq, from, r.Done, r.Through, len(r.Orders))
	}
	return t.agreed(time.Now())
}

func (t *trial) recallsNothing() error {
	from := t.Seq.Load() + 1
	r, err := t.recalls(from)
	if err != nil {
		return err
	}
	if !r.Done || len(r.Orders) > 0 || r.Through != from-1 {
		return fmt.Errorf("expected done, through %d and no orders; got %t, %d and %d", from-1, r.Done, r.Through, len(r.Orders))
	}
	return t.agreed(time.Now())
}

func (t *trial) takesBase() error {
	t.mu.Lock()
	base := t.Seq.Add(1<<20) - 1
	t.mu.Unlock()
	begun, err := t.compared(func(m *mood) { m.base = base })
	if err != nil {
		return err
	}
	if _, err := t.told(begun, func(n *commands.Numbering) bool { return n.Digest != nil && n.Digest.Base == base }, "a digest with the base %d", base); err != nil {
		return err
	}
	if err := t.agreed(begun); err != nil {
		return err
	}
	if err := t.passed(); err != nil {
		return err
	}
	return t.tellsHeld()
}

func (t *trial) takesVoid() error {
	t.mu.Lock()
	from := t.Seq.Load() + 1
	base := t.Seq.Add(1<<20) - 1
	t.mu.Unlock()
	begun, err := t.compared(func(m *mood) { m.base, m.void = base, []commands.Range{{From: from, To: base}} })
	if err != nil {
		return err
	}
	if err := t.agreed(begun); err != nil {
		return err
	}
	if err := t.passed(); err != nil {
		return err
	}
	s, err := t.order(noop(), func(h *signing.Header) { h.Seq = from })
	if err != nil {
		return err
	}
	if _, err := t.result(s.ID, commands.Completed); err != nil {
		return err
	}
	t.set(func(m *mood) { m.void = nil })
	return t.complaints()
}

func (t *trial) takesRefused() error {
	if _, err := t.completes(noop()); err != nil {
		return err
	}
	begun, err := t.compared(func(m *mood) {
		m.refused, m.full = []commands.RefusedReport{{Seq: 1, Code: commands.ResultClash}}, true
	})
	if err != nil {
		return err
	}
	if err := t.agreed(begun); err != nil {
		return err
	}
	if err := t.passed(); err != nil {
		return err
	}
	t.set(func(m *mood) { m.refused, m.full = nil, false })
	return t.agreed(time.Now())
}
