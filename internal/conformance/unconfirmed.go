package conformance

import (
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

func unconfirmedRules() []Rule {
	return []Rule{
		joining("join-unconfirmed"),
		{"retries", "6.3, 7.4", "runs an agent that failed again within max_retries, with the next attempt and a higher fence", (*trial).retries},
		{"sent-again", "4.4, 7.2", "sends what was not confirmed again after 30 s, on the same link", (*trial).sentAgain},
		{"confirmed-once", "7.2", "does not send again what was confirmed", (*trial).confirmedOnce},
	}
}

// sentAgain is as slow as the page says: the hub has lost what it had acknowledged, and
// waits.
func (t *trial) sentAgain() error {
	s, err := t.unanswered()
	if err != nil {
		return err
	}
	t.pause(time.Second, func() bool { return false }) // for all of the first time
	t.set(func(m *mood) { m.forgets = false })
	if len(t.answers(s.ID)) > 0 {
		return &notTried{"its answers came over more than a second: none was lost"}
	}
	t.patience += 40 * time.Second
	defer func() { t.patience -= 40 * time.Second }()
	_, err = t.result(s.ID, commands.Completed)
	return err
}

// unanswered has something done whose answers the hub loses, once one has come.
func (t *trial) unanswered() (signing.Sealed, error) {
	t.set(func(m *mood) { m.forgets = true })
	s, err := t.order(noop(), nil)
	if err != nil {
		return s, err
	}
	return s, t.await(func() bool { return t.came() > 0 }, "answers to the spawn")
}

// came counts the messages that came, repetitions included.
func (t *trial) came() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, times := range t.times {
		n += times
	}
	return n
}

func (t *trial) confirmedOnce() error {
	s, err := t.completes(noop())
	if err != nil {
		return err
	}
	if err := t.passed(); err != nil {
		return err
	}
	begun := time.Now()
	t.proxy.Reset()
	if err := t.agreed(begun); err != nil {
		return err
	}
	if err := t.passed(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.heard {
		if re := h.header().Re; re != nil && re.ID == s.ID && t.times[h.header().ID] > 1 {
			return fmt.Errorf("expected each confirmed message once; %s came %d times", h.Body.Kind(), t.times[h.header().ID])
		}
	}
	return nil
}
