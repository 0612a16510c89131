package conformance

import (
	"fmt"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// treeRules are about messages that were signed together, and about what was heard so far.
func treeRules() []Rule {
	return []Rule{
		{"trees", "5.2", "reads the messages of trees of 2, 5 and 64 leaves", (*trial).trees},
		{"packs", "4.4", "reads a pack, and judges each message of it by itself", (*trial).packs},
		{"own-numbers", "5.3, 7.2", "numbers its messages from 1 without gaps, one id each, and signs what a hub can verify", (*trial).ownNumbers},
	}
}

func (t *trial) trees() error {
	for _, size := range []int{2, 5, 64} {
		var list []signing.Unsealed
		t.mu.Lock()
		for range size {
			raw, err := commands.EncodeBody(noop())
			if err != nil {
				return err
			}
			list = append(list, signing.Unsealed{Type: signing.Command, Header: t.Header(commands.SpawnKind, nil), Body: raw})
		}
		t.mu.Unlock()
		all, err := t.Keys.Signing.SealAll(list)
		if err != nil {
			return err
		}
		for _, s := range all {
			t.remember(s)
			if err := t.publish(commands.QueueRun, s.Envelope); err != nil {
				return err
			}
		}
		for i, s := range all {
			if _, err := t.result(s.ID, commands.Completed); err != nil {
				return fmt.Errorf("leaf %d of %d: %w", i, size, err)
			}
		}
	}
	return nil
}

func (t *trial) packs() error {
	one, two, spoilt := t.make(noop(), nil), t.make(noop(), nil), t.make(noop(), nil)
	bad := strings.Replace(string(spoilt.Envelope), `"index":0`, `"index":1`, 1)
	pack := "[" + string(one.Envelope) + "," + bad + "," + string(two.Envelope) + "]"
	t.mu.Lock()
	delete(t.sent, spoilt.Seq)
	t.mu.Unlock()
	if err := t.publish(commands.QueueRun, []byte(pack)); err != nil {
		return err
	}
	for _, s := range []signing.Sealed{one, two} {
		if _, err := t.result(s.ID, commands.Completed); err != nil {
			return err
		}
	}
	return t.quiet(spoilt.ID, 0)
}

func (t *trial) ownNumbers() error {
	if err := t.passed(); err != nil {
		return err
	}
	t.mu.Lock()
	n := t.numbers()
	t.mu.Unlock()
	if len(n.Gaps) > 0 {
		return fmt.Errorf("expected numbers from 1 to %d without gaps; missing are %v", n.Through, n.Gaps)
	}
	return t.complaints()
}
