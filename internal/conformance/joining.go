package conformance

import (
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// joining is the first rule of every scene: without it there is nothing to try.
func joining(name string) Rule {
	return Rule{name, "3", "joins with the token, links up with its own key and agrees with an empty history", (*trial).joins}
}

func (t *trial) joins() error {
	begun := time.Now()
	if err := t.program.start(); err != nil {
		return err
	}
	err := t.await(func() bool {
		t.server.mu.Lock()
		defer t.server.mu.Unlock()
		return t.server.link != ""
	}, "the handshake to end with a proof")
	if err != nil {
		t.server.mu.Lock()
		defer t.server.mu.Unlock()
		if t.server.joinFault != nil {
			err = fmt.Errorf("%w; %w", err, t.server.joinFault)
		}
		return err
	}
	return t.agreed(begun)
}

// linkRules are about heartbeats and about what may be sent when.
func linkRules() []Rule {
	return []Rule{
		{"incarnation", "4.1", "names its incarnation, a UUID, in CONNECT and in its heartbeats", func(t *trial) error {
			t.server.mu.Lock()
			name := t.server.logins[len(t.server.logins)-1]
			t.server.mu.Unlock()
			if !signing.ValidUUID(name) {
				return fmt.Errorf("expected a UUID as name of CONNECT; got %q", name)
			}
			b := t.lastBeat()
			if b.Incarnation != name {
				return fmt.Errorf("expected the incarnation %s of its login in a heartbeat; got %q", name, b.Incarnation)
			}
			return nil
		}},
		{"heartbeat", "7.1", "sends a heartbeat every interval_ms, with fields in their bounds, and declines nothing that it takes", (*trial).beatsOn},
		{"agree-first", "7.6", "sends no stored message on a new link before the histories agree", (*trial).agreesFirst},
	}
}

func (t *trial) lastBeat() *commands.Heartbeat {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.beats[len(t.beats)-1].Heartbeat
}

// beatsOn waits for two more heartbeats, each no later than three of the intervals that
// they name and what a busy machine takes.
func (t *trial) beatsOn() error {
	interval := time.Duration(t.lastBeat().IntervalMS) * time.Millisecond
	if interval > t.patience {
		return &notTried{fmt.Sprintf("its interval of %s is longer than an answer is waited for; use a shorter one", interval)}
	}
	patience := t.patience
	defer func() { t.patience = patience }()
	t.patience += 3 * interval
	for range 2 {
		if err := t.beaten(time.Now(), func(*commands.Heartbeat) bool { return true }, "a heartbeat every %s", interval); err != nil {
			return err
		}
	}
	if d := t.lastBeat().Declines; len(d) > 0 {
		return fmt.Errorf("expected no declines of a spoke that takes all orders; got %s of %q", d[0].Code, d[0].What)
	}
	return t.complaints()
}

func (t *trial) agreesFirst() error {
	t.set(func(m *mood) { m.silent = true })
	t.proxy.Reset()
	begun := time.Now()
	s, err := t.order(noop(), nil)
	if err != nil {
		return err
	}
	if err := t.beaten(begun, func(b *commands.Heartbeat) bool { return !b.Connection.Agrees }, "a heartbeat on a new link that does not agree yet"); err != nil {
		return err
	}
	// It is delivered meanwhile: what it answers would come in a moment.
	if err := t.awaitFor(2*time.Second, func() bool { return len(t.answers(s.ID)) > 0 }, ""); err == nil {
		return fmt.Errorf("expected nothing before both sides compared their histories; got %s", told(t.answers(s.ID)))
	}
	t.set(func(m *mood) { m.silent = false })
	_, err = t.result(s.ID, commands.Completed)
	return err
}
