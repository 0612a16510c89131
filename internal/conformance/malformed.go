package conformance

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/internal/forge"
	"github.com/spawnmesh/spawnmesh/signing"
)

// malformedRules send every message that must be refused. They are kills of unknown tasks:
// one that is taken has an answer, and a connection that the spoke suspended for so many
// bad messages still takes kills.
func malformedRules() []Rule {
	rules := []Rule{joining("join-malformed")}
	for _, c := range []struct{ class, section, says string }{
		{"bytes", "5.1, 5.4", "what is no envelope, or not in its one spelling, has no effect and no answer"},
		{"types", "5.1, 5.4", "a message under another type, or one that was not signed, has no effect and no answer"},
		{"trees", "5.2, 5.4", "a message at another place of a tree than its own has no effect and no answer"},
		{"signatures", "5.4", "a message without the good signature of a known key has no effect and no answer"},
		{"numbers", "5.1, 5.3", "numbers of a header in another spelling, or out of bounds, have no effect and no answer"},
		{"fields", "5.1, 5.3", "a header with fields missing, null, twice, unknown or misplaced has no effect and no answer"},
		{"identifiers", "5.3", "ids in another form than their one have no effect and no answer"},
		{"addresses", "5.4", "a message of or to somebody else, or of another connection or epoch, has no effect and no answer"},
		{"workspaces", "5.4", "a message of another workspace is refused as GRANT"},
		{"times", "5.4", "a message from the past, or of too long a life, is refused with its code; one from the future has no effect and no answer"},
		{"kinds", "5.4", "a kind that is unknown, or under another type, has no effect; one that is a command is refused as HDR_FIELD"},
		{"bodies", "5.4, 6.1", "a body that is not what was signed, or breaks the rules of bodies, is refused with its code"},
	} {
		rules = append(rules, Rule{"malformed-" + c.class, c.section, c.says, func(t *trial) error { return t.malformed(c.class) }})
	}
	return append(rules,
		Rule{"keeps-link", "5.4", "takes good messages after all of these", (*trial).keepsLink},
		Rule{"suspends", "5.4, 7.1", "suspends the connection by itself when twenty such messages came in a minute, and says so", (*trial).suspends})
}

// malformed sends the bad messages of one class and compares what came of each.
func (t *trial) malformed(class string) error {
	t.mu.Lock()
	all := t.Bad(func() (commands.Body, *signing.Ref) {
		if class == "times" { // a kill may come before its time
			return &commands.Status{Task: forge.NewID()}, nil
		}
		return &commands.Kill{Task: forge.NewID(), Reason: "must not be taken"}, nil
	})
	t.sent = nil // numbers and digests of these are not followed
	t.mu.Unlock()
	all = slices.DeleteFunc(all, func(b forge.Bad) bool { return b.Class != class || len(b.Envelope) > transport.MaxCommand })
	from := len(t.all())
	for _, bad := range all {
		if err := t.publish(commands.QueueControl, bad.Envelope); err != nil {
			return fmt.Errorf("%s: %w", bad.Name, err)
		}
	}
	if err := t.asked(); err != nil {
		return err
	}
	return t.compare(all, t.all()[from:])
}

func (t *trial) all() []heard {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.heard)
}

// asked waits until a status that was sent behind others is answered.
func (t *trial) asked() error {
	q, err := t.order(&commands.Status{Task: forge.NewID()}, nil)
	if err != nil {
		return err
	}
	_, err = t.refusal(q.ID, commands.UnknownTask)
	return err
}

// compare fails unless each signed message has its refusal and no other one any answer.
func (t *trial) compare(all []forge.Bad, heard []heard) error {
	codes := map[string]signing.Code{}
	for _, h := range heard {
		r, ok := h.Body.(*commands.RefusedBody)
		switch {
		case ok:
			codes[h.header().Re.ID] = r.Code
		case h.header().Re != nil:
			codes[h.header().Re.ID] = signing.Code(h.Body.Kind())
		}
	}
	var wrong []string
	for _, bad := range all {
		var h struct {
			ID   string        `json:"id"`
			Kind commands.Kind `json:"kind"`
		}
		_ = json.Unmarshal(headerOf(bad.Envelope), &h) // what cannot be read cannot be answered
		want, got := signing.Code(""), codes[h.ID]
		if bad.Signed && h.Kind.Type() == signing.Command && bad.Code != signing.TimeFuture { // that comes again when a clock was set
			want = bad.Code
		}
		if got != want {
			wrong = append(wrong, fmt.Sprintf("%s: expected %s, got %s", bad.Name, orNothing(want, bad.Code), orNothing(got, "")))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d: %s", len(wrong), len(all), strings.Join(wrong[:min(len(wrong), 5)], "; "))
}

// orNothing names an answer, or the lack of one for a message with a code.
func orNothing(answer, code signing.Code) string {
	switch {
	case answer != "":
		return "the answer " + string(answer)
	case code != "":
		return "no answer (" + string(code) + ")"
	}
	return "no answer"
}

func (t *trial) keepsLink() error {
	k, err := t.order(&commands.Kill{Task: forge.NewID(), Reason: "this one is good"}, nil)
	if err != nil {
		return err
	}
	if _, err := t.answer(k.ID, commands.AcceptedKind); err != nil {
		return err
	}
	return t.complaints()
}

func (t *trial) suspends() error {
	err := t.beaten(time.Time{}, func(b *commands.Heartbeat) bool {
		return b.Connection.State == commands.ConnSuspended && b.Connection.By == "self"
	}, "a heartbeat with the state suspended, by self")
	if err != nil {
		return err
	}
	s, err := t.order(noop(), nil)
	if err != nil {
		return err
	}
	if t.awaitFor(2*time.Second, func() bool { return len(t.answers(s.ID)) > 0 }, "") == nil {
		return fmt.Errorf("expected no spawn to be taken while the spoke has suspended the connection; got %s", kinds(t.answers(s.ID)))
	}
	return nil
}
