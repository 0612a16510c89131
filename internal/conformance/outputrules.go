package conformance

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/forge"
	"github.com/spawnmesh/spawnmesh/signing"
)

func (t *trial) bothStreams() error {
	spawn := shell(`printf 'to out\000\377'; printf 'to err' >&2`)
	s, err := t.order(spawn, nil)
	if err != nil {
		return err
	}
	r, err := t.result(s.ID, commands.Completed)
	if err != nil {
		return err
	}
	for _, o := range []struct {
		name, want string
		told       commands.Output
	}{{"stdout", "to out\x00\xff", r.Stdout}, {"stderr", "to err", r.Stderr}} {
		if err := described(o.told, o.want); err != nil {
			return fmt.Errorf("%s: %w", o.name, err)
		}
		if err := t.wrote(spawn.Task, 1, o.name, o.want); err != nil {
			return err
		}
	}
	return t.complaints()
}

func (t *trial) largeOutput() error {
	spawn := shell(`i=0; while [ $i -lt 20000 ]; do printf '%0100d' $i; i=$((i+1)); done`)
	var want strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&want, "%0100d", i)
	}
	s, err := t.order(spawn, nil)
	if err != nil {
		return err
	}
	r, err := t.result(s.ID, commands.Completed)
	if err != nil {
		return err
	}
	if err := described(r.Stdout, want.String()); err != nil {
		return err
	}
	if err := t.wrote(spawn.Task, 1, "stdout", want.String()); err != nil {
		return err
	}
	// The hub has lost all but the first 1,000 bytes of it, and says so.
	st := stream{spawn.Task, 1, "stdout"}
	t.mu.Lock()
	t.outputs[st].bytes, t.outputs[st].ended = t.outputs[st].bytes[:1000], false
	t.say(&commands.OutputStored{Streams: []commands.StoredStream{{Task: spawn.Task, Attempt: 1, Stream: "stdout", Through: 1000}}})
	t.mu.Unlock()
	if err := t.await(func() bool { return t.output(st).ended }, "the rest of the output, or an end with cut, after the hub said that it has less than before"); err != nil {
		return err
	}
	if got := string(t.output(st).bytes); !strings.HasPrefix(want.String(), got) {
		return fmt.Errorf("expected the same bytes again from 1000 on; got other ones")
	}
	return t.complaints()
}

// wrote waits for the whole of a stream, and compares it.
func (t *trial) wrote(task string, attempt int, name, want string) error {
	st := stream{task, attempt, name}
	if err := t.await(func() bool { return t.output(st).ended }, "the end of %s of %s", name, task); err != nil {
		return fmt.Errorf("%w; %d bytes came", err, len(t.output(st).bytes))
	}
	if got := t.output(st).bytes; string(got) != want {
		return fmt.Errorf("expected %d bytes of %s, %.80q; got %d, %.80q", len(want), name, want, len(got), got)
	}
	return nil
}

// described compares what a result says of a stream with its content.
func described(o commands.Output, want string) error {
	sum := sha256.Sum256([]byte(want))
	if digest := hex.EncodeToString(sum[:]); o.Bytes != int64(len(want)) || o.Size != int64(len(want)) || len(want) > 0 && o.SHA256 != digest {
		return fmt.Errorf("expected %d bytes with SHA-256 %s in the result; got bytes %d, size %d, %s", len(want), digest, o.Bytes, o.Size, o.SHA256)
	}
	return nil
}

func (t *trial) surroundings() error {
	spawn := shell(`printf '%s %s %s' "$PWD" "$CONFORMANCE" "$SECRET"; cat "$SECRET_FILE"`)
	spawn.Dir, spawn.Env = "/", []commands.EnvVar{{Name: "CONFORMANCE"}, {Name: "SECRET", As: commands.EnvSecret}, {Name: "SECRET_FILE", As: commands.EnvFile}}
	// Too short to be looked for in the output.
	if err := t.completesWith(spawn, "a b", "\u00fc;", "x\ny"); err != nil {
		return err
	}
	return t.wrote(spawn.Task, 1, "stdout", "/ a b \u00fc;x\ny")
}

// completesWith orders a spawn with values, and waits until it has completed.
func (t *trial) completesWith(spawn *commands.Spawn, values ...string) error {
	id := forge.NewID()
	s, err := t.order(t.Valued(spawn, id, values...), func(h *signing.Header) { h.ID = id })
	if err != nil {
		return err
	}
	_, err = t.result(s.ID, commands.Completed)
	return err
}

// sealedElsewhere orders spawns whose values were sealed for another message, and with other
// names: nobody who copies a ciphertext learns what is in it.
func (t *trial) sealedElsewhere() error {
	trace := t.trace()
	for name, change := range map[string]func(*commands.Spawn){
		"another message":    func(*commands.Spawn) {},
		"another variable":   func(s *commands.Spawn) { s.Env[0].Name = "ANOTHER" },
		"another key":        func(s *commands.Spawn) { s.Sealed.Key = signing.SealingKeyIDOf([]byte("another")) },
		"a bit of the value": func(s *commands.Spawn) { s.Sealed.Box[len(s.Sealed.Box)-1] ^= 1 },
	} {
		id := forge.NewID()
		plain := shell("echo ran >> " + trace)
		plain.Env = []commands.EnvVar{{Name: "CONFORMANCE"}}
		spawn := t.Valued(plain, id, "value")
		change(spawn)
		s, err := t.order(spawn, func(h *signing.Header) {
			if name != "another message" {
				h.ID = id
			}
		})
		if err != nil {
			return err
		}
		if _, err := t.refusal(s.ID, signing.SealOpen); err != nil {
			return fmt.Errorf("values sealed for %s: %w", name, err)
		}
	}
	return ran(trace)
}
