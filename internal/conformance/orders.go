package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/internal/forge"
	"github.com/spawnmesh/spawnmesh/signing"
)

// control publishes a message of a kind that is not stored. It may be lost.
func (t *trial) control(kind commands.Kind, envelope []byte) {
	verb := strings.ReplaceAll(string(kind[strings.LastIndexByte(string(kind), '.')+1:]), "_", "-")
	hub := t.server.running()
	if hub == nil {
		return
	}
	ctx, done := context.WithTimeout(t.ctx, 5*time.Second)
	defer done()
	hub.Publish(ctx, []transport.Command{{Conn: t.Conn, Queue: commands.QueueControl, Verb: verb, ID: forge.NewID(), Envelope: envelope}})
}

// make seals a message of a stored kind, and keeps it. change may be nil.
func (t *trial) make(body commands.Body, change func(*signing.Header)) signing.Sealed {
	t.mu.Lock()
	s := t.Seal(body, nil, change)
	t.mu.Unlock()
	t.remember(s)
	return s
}

// publish puts any bytes in a queue of the spoke. Each is a message of its own to the
// message server, also when the bytes are the same.
func (t *trial) publish(queue string, envelopes ...[]byte) error {
	hub := t.server.running()
	if hub == nil {
		return errors.New("the message server of the runner does not run")
	}
	ctx, done := context.WithTimeout(t.ctx, 10*time.Second)
	defer done()
	for _, e := range envelopes {
		if err := errors.Join(hub.Publish(ctx, []transport.Command{{Conn: t.Conn, Queue: queue, Verb: "any", ID: forge.NewID(), Envelope: e}})...); err != nil {
			return fmt.Errorf("queueing a message for the spoke: %w", err)
		}
	}
	return nil
}

// order seals and sends a message in the queue of its kind.
func (t *trial) order(body commands.Body, change func(*signing.Header)) (signing.Sealed, error) {
	s := t.make(body, change)
	queue := body.Kind().Queue()
	if queue == "" {
		queue = commands.QueueControl
	}
	return s, t.publish(queue, s.Envelope)
}

// completes has a task done.
func (t *trial) completes(spawn *commands.Spawn) (signing.Sealed, error) {
	s, err := t.order(spawn, nil)
	if err != nil {
		return s, err
	}
	_, err = t.result(s.ID, commands.Completed)
	return s, err
}

// begins has a script started that writes "begun" to its trace.
func (t *trial) begins(spawn *commands.Spawn, trace string) (signing.Sealed, error) {
	s, err := t.order(spawn, nil)
	if err != nil {
		return s, err
	}
	return s, t.appears(trace, "begun")
}

// shell is a spawn of a shell script.
func shell(script string) *commands.Spawn {
	return &commands.Spawn{Task: forge.NewID(), Runtime: commands.RuntimeExec, Argv: []string{"sh", "-c", script}}
}

// noop is a spawn that starts nothing.
func noop() *commands.Spawn {
	return &commands.Spawn{Task: forge.NewID(), Runtime: commands.RuntimeNoop}
}

// answers returns what the spoke has said in answer to a command, by number.
func (t *trial) answers(id string) (list []heard) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.heard {
		if re := h.header().Re; re != nil && re.ID == id {
			list = append(list, h)
		}
	}
	slices.SortFunc(list, func(a, b heard) int { return int(a.header().Seq - b.header().Seq) })
	return list
}

// answer waits for an answer of one kind to a command.
func (t *trial) answer(id string, kind commands.Kind) (got heard, err error) {
	err = t.await(func() bool {
		for _, h := range t.answers(id) {
			if h.Body.Kind() == kind {
				got = h
				return true
			}
		}
		return false
	}, "%s in answer to the command", kind)
	if err != nil {
		err = fmt.Errorf("%w; its answers: %s", err, told(t.answers(id)))
	}
	return got, err
}

// result waits for the end of a task, which must be in a state.
func (t *trial) result(id string, want commands.State) (*commands.Result, error) {
	h, err := t.answer(id, commands.ResultKind)
	if err != nil {
		return nil, err
	}
	r := h.Body.(*commands.Result)
	if r.State != want {
		return r, fmt.Errorf("expected a result with state %s; got %s", want, r.Sentence())
	}
	return r, nil
}

// refusal waits for a refusal, which must have one of the codes.
func (t *trial) refusal(id string, codes ...commands.Code) (*commands.RefusedBody, error) {
	h, err := t.answer(id, commands.RefusedKind)
	if err != nil {
		return nil, err
	}
	r := h.Body.(*commands.RefusedBody)
	if !slices.Contains(codes, r.Code) {
		return r, fmt.Errorf("expected agent.refused with %v; got %s: %s", codes, r.Code, r.Why)
	}
	return r, nil
}

// told lists messages for people.
func told(list []heard) string {
	if len(list) == 0 {
		return "none"
	}
	var words []string
	for _, h := range list {
		words = append(words, fmt.Sprintf("%d %s", h.header().Seq, h.Body.Kind()))
	}
	return strings.Join(words, ", ")
}

// kinds are those of a list of messages, in their order.
func kinds(list []heard) string {
	var words []string
	for _, h := range list {
		words = append(words, strings.TrimPrefix(string(h.Body.Kind()), "agent."))
	}
	return strings.Join(words, " ")
}
