package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/internal/faulty"
	"github.com/spawnmesh/spawnmesh/internal/forge"
	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/signing"
)

// A trial is a spoke program and what it is linked to: the hub by hand of most scenes, or
// the real one of the last.
type trial struct {
	*peer
	ctx      context.Context
	dir      string
	patience time.Duration
	program  *program
	proxy    *faulty.Proxy
	server   *server
	mesh     *mesh // of the last scene
	heed     int   // faults that were told of
}

// byHand sets up a scene with a hub by hand, and tries its rules.
func byHand(ctx context.Context, s *stage) (err error) {
	t := &trial{ctx: ctx, dir: s.dir, patience: s.options.Patience}
	if t.server, err = newServer(s.dir); err != nil {
		return err
	}
	t.peer = newPeer(t.server.keys)
	t.peer.send = t.control
	t.server.hear = ears{t.peer.joined, t.peer.reports, t.peer.logs, t.peer.beat, t.peer.answer}
	if err := t.server.start(ctx); err != nil {
		return err
	}
	defer t.server.stop()
	if t.proxy, err = faulty.New(t.server.address); err != nil {
		return err
	}
	defer t.proxy.Close()
	t.server.invite(t.proxy.Addr())
	text, err := t.server.token.Text()
	if err != nil {
		return err
	}
	t.program = &program{command: s.options.Command, dir: s.dir, token: text}
	defer t.program.stop()
	s.try(t)
	return nil
}

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

// await polls until ok. It fails at once when the program ends by itself.
func (t *trial) await(ok func() bool, format string, args ...any) error {
	return t.awaitFor(t.patience, ok, format, args...)
}

func (t *trial) awaitFor(patience time.Duration, ok func() bool, format string, args ...any) error {
	for until := time.Now().Add(patience); !ok(); {
		if end := t.program.ended(); end != "" {
			return fmt.Errorf("expected %s; %s", fmt.Sprintf(format, args...), end)
		}
		if time.Now().After(until) {
			return fmt.Errorf("expected %s; nothing within %s", fmt.Sprintf(format, args...), patience)
		}
		if err := wait.For(t.ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// pause waits until ok, and no longer than d. The program may end meanwhile.
func (t *trial) pause(d time.Duration, ok func() bool) {
	for until := time.Now().Add(d); !ok() && time.Now().Before(until); {
		if wait.For(t.ctx, 20*time.Millisecond) != nil {
			return
		}
	}
}

// passed waits until the spoke has taken in all that was sent before, in one queue: it
// answers a question, and a spawn, that come behind it.
func (t *trial) passed() error {
	s, err := t.order(&commands.Status{Task: forge.NewID()}, nil)
	if err != nil {
		return err
	}
	if _, err := t.refusal(s.ID, commands.UnknownTask); err != nil {
		return err
	}
	s, err = t.order(noop(), nil)
	if err != nil {
		return err
	}
	_, err = t.result(s.ID, commands.Completed)
	return err
}

// beaten waits for a heartbeat that came after a moment and fits.
func (t *trial) beaten(after time.Time, ok func(*commands.Heartbeat) bool, format string, args ...any) error {
	return t.await(func() bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		return slices.ContainsFunc(t.beats, func(b beat) bool { return b.at.After(after) && ok(b.Heartbeat) })
	}, format, args...)
}

// agreed waits until the spoke sends on its present link.
func (t *trial) agreed(after time.Time) error {
	return t.beaten(after, func(b *commands.Heartbeat) bool { return b.Connection.Agrees }, "a heartbeat that agrees")
}

// complaints are the faults of messages that came since it was asked last.
func (t *trial) complaints() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.faults[t.heed:]
	t.heed = len(t.faults)
	if len(list) == 0 {
		return nil
	}
	return errors.New(strings.Join(list[:min(len(list), 3)], "; "))
}

// trace is a file that an agent writes to.
func (t *trial) trace() string { return filepath.Join(t.dir, "trace-"+forge.NewID()) }

// lines are those of a trace; none where the file is not there.
func lines(path string) []string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Fields(string(raw))
}

// appears waits for a word in a trace.
func (t *trial) appears(path, word string) error {
	return t.await(func() bool { return slices.Contains(lines(path), word) }, "the agent to write %q", word)
}

// ran fails unless an agent wrote exactly these words.
func ran(path string, want ...string) error {
	if got := lines(path); !slices.Equal(got, want) {
		return fmt.Errorf("expected the agent to have written %q; it wrote %q", want, got)
	}
	return nil
}
