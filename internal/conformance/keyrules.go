package conformance

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

func keyRules() []Rule {
	return []Rule{
		joining("join-keys"),
		{"keyset", "7.5", "takes a key set of the hub, confirms it at once, and knows both keys", (*trial).takesKeySet},
		{"keyset-old", "7.5", "does not take a key set that is not newer", (*trial).oldKeySet},
		{"keyset-identity", "5.4, 7.5", "does not take a key set without the signature of the identity key", (*trial).unsignedKeySet},
		{"key-revoked", "5.4, 7.5", "takes nothing any more that a revoked key has signed", (*trial).revokedKey},
		{"keyset-restart", "1, 7.5", "knows the hub's keys after it was killed", (*trial).keysStay},
		{"suspended", "4.5", "asks what has become of a connection whose link is refused, and goes on when the hub resumes it", (*trial).suspended},
		{"revoked", "4.5, 7.3", "ends the connection when the hub revokes it: its agents end, and it does not dial the link again", (*trial).revoked},
	}
}

// signer makes a new signing key.
func signer() (*signing.Signer, error) {
	seed := make([]byte, 32)
	rand.Read(seed)
	return signing.NewSigner(seed)
}

// keySet sends a key set that is signed with the present key, and with others.
func (t *trial) keySet(set *commands.KeySet, also ...*signing.Signer) (signing.Sealed, error) {
	raw, err := commands.EncodeBody(set)
	if err != nil {
		return signing.Sealed{}, err
	}
	t.mu.Lock()
	s, err := t.Keys.Signing.Seal(signing.KeySet, t.Header(commands.KeySetKind, nil), raw, also...)
	t.mu.Unlock()
	if err != nil {
		return s, err
	}
	t.remember(s)
	return s, t.publish(commands.QueueControl, s.Envelope)
}

// received waits for a peer.received that names a number.
func (t *trial) received(seq int64, patience time.Duration) error {
	return t.awaitFor(patience, func() bool {
		for _, h := range t.all() {
			r, ok := h.Body.(*commands.Received)
			if !ok || r.Through < seq {
				continue
			}
			missing := false
			for _, g := range r.Gaps {
				missing = missing || g.From <= seq && seq <= g.To
			}
			if !missing {
				return true
			}
		}
		return false
	}, "a peer.received that names number %d", seq)
}

func (t *trial) takesKeySet() error {
	next, err := signer()
	if err != nil {
		return err
	}
	old := t.Keys.Signing
	s, err := t.keySet(&commands.KeySet{Version: time.Now().UnixMilli(), Keys: []commands.SetKey{{Pub: next.Public()}, {Pub: old.Public(), ForMS: 600_000}}}, t.Keys.Identity)
	if err != nil {
		return err
	}
	if err := t.received(s.Seq, t.patience); err != nil {
		return err
	}
	if err := t.passed(); err != nil {
		return fmt.Errorf("signed with the old key: %w", err)
	}
	t.mu.Lock()
	t.Keys.Signing = next
	t.mu.Unlock()
	if err := t.passed(); err != nil {
		return fmt.Errorf("signed with the new key: %w", err)
	}
	return t.complaints()
}

// unheard sends a key set that names a stranger's key, and fails when that is taken.
func (t *trial) unheard(version int64, also ...*signing.Signer) error {
	stranger, err := signer()
	if err != nil {
		return err
	}
	mine := t.Keys.Signing
	if _, err := t.keySet(&commands.KeySet{Version: version, Keys: []commands.SetKey{{Pub: mine.Public()}, {Pub: stranger.Public(), ForMS: 600_000}}}, also...); err != nil {
		return err
	}
	if err := t.passed(); err != nil {
		return err
	}
	t.mu.Lock()
	t.Keys.Signing = stranger
	s := t.Seal(noop(), nil, nil)
	t.Keys.Signing = mine
	t.mu.Unlock()
	if err := t.publish(commands.QueueRun, s.Envelope); err != nil {
		return err
	}
	return t.quiet(s.ID, 0)
}

func (t *trial) oldKeySet() error { return t.unheard(1, t.Keys.Identity) }

func (t *trial) unsignedKeySet() error {
	err := t.unheard(time.Now().UnixMilli())
	t.mu.Lock()
	t.sent = nil // it was not stored: digests are not followed from here on
	t.mu.Unlock()
	return err
}

func (t *trial) revokedKey() error {
	next, err := signer()
	if err != nil {
		return err
	}
	old := t.Keys.Signing
	s, err := t.keySet(&commands.KeySet{Version: time.Now().UnixMilli(), Keys: []commands.SetKey{{Pub: next.Public()}}, Revoked: []signing.KeyID{old.KeyID()}}, t.Keys.Identity)
	if err != nil {
		return err
	}
	if err := t.received(s.Seq, t.patience); err != nil {
		return err
	}
	t.mu.Lock()
	bad := t.Seal(noop(), nil, nil)
	t.Keys.Signing = next
	t.mu.Unlock()
	if err := t.publish(commands.QueueRun, bad.Envelope); err != nil {
		return err
	}
	return t.quiet(bad.ID, 0)
}

func (t *trial) keysStay() error {
	if err := t.restart(t.program.kill); err != nil {
		return err
	}
	return t.passed()
}

// suspended has the hub suspend the connection, as a hub does: it refuses the link, and
// tells the state to who asks.
func (t *trial) suspended() error {
	trace := t.trace()
	hub := t.server.running()
	t.set(func(m *mood) { m.state, m.by = commands.ConnSuspended, "operator" })
	asked := t.asks
	hub.Cut(t.Conn)
	s, err := t.order(shell("echo once >> "+trace), nil)
	if err != nil {
		return err
	}
	err = t.await(func() bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.asks > asked
	}, "a question on mesh.ask while its link is refused")
	t.set(func(m *mood) { m.state, m.by = "", "" })
	t.server.mu.Lock()
	begun, again := time.Now(), t.server.admit(t.ctx, hub)
	t.server.mu.Unlock()
	if err := errors.Join(err, again); err != nil {
		return err
	}
	if err := t.agreed(begun); err != nil {
		return err
	}
	if _, err := t.result(s.ID, commands.Completed); err != nil {
		return err
	}
	return ran(trace, "once")
}

func (t *trial) revoked() error {
	trace := t.trace()
	spawn := shell("echo $$ >> " + trace + "; sleep 5; echo over >> " + trace)
	s, err := t.order(spawn, nil)
	if err != nil {
		return err
	}
	if _, err := t.answer(s.ID, commands.StartedKind); err != nil {
		return err
	}
	t.pause(t.patience, func() bool { return len(lines(trace)) > 0 }) // it has started, and writes by and by
	t.mu.Lock()
	t.say(&commands.Revoked{Reason: "the rule says so"})
	t.mu.Unlock()
	t.pause(10*time.Second, func() bool {
		n, err := t.server.running().WaitingCommands(t.ctx, t.Conn, commands.QueueControl)
		return err == nil && n == 0 || t.program.ended() != ""
	})
	t.set(func(m *mood) { m.refuses = "the rule says so" })
	t.server.running().Cut(t.Conn)
	t.pause(6*time.Second, func() bool { return len(lines(trace)) > 1 })
	if got := lines(trace); len(got) != 1 {
		return fmt.Errorf("expected the agent to end with the connection; it wrote %q", got)
	}
	return t.stays()
}

// stays fails when the spoke logs in once more after its connection has ended.
func (t *trial) stays() error {
	hub := t.server.running()
	t.server.mu.Lock()
	logins := len(t.server.logins)
	err := t.server.admit(t.ctx, hub)
	t.server.mu.Unlock()
	if err != nil {
		return err
	}
	t.pause(3*time.Second, func() bool { return false })
	t.server.mu.Lock()
	defer t.server.mu.Unlock()
	if len(t.server.logins) > logins {
		return fmt.Errorf("expected no further login after the end; there were %d", len(t.server.logins)-logins)
	}
	return nil
}
