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
	"github.com/spawnmesh/spawnmesh/internal/faulty"
	"github.com/spawnmesh/spawnmesh/internal/forge"
	"github.com/spawnmesh/spawnmesh/internal/wait"
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
	s.tryWith(t, text)
	return nil
}

// tryWith tries the rules on a program that joins with a token.
func (s *stage) tryWith(t *trial, token string) {
	t.program = &program{command: s.options.Command, dir: s.dir, token: token}
	defer t.program.stop()
	s.try(t)
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
