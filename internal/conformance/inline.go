package conformance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/forge"
	"github.com/spawnmesh/spawnmesh/signing"
)

// inlineFiles orders an agent that spoils its files in each attempt, and files for other places.
func (t *trial) inlineFiles() error {
	if !t.offers(commands.InlineFiles) {
		return &notTried{"it does not offer the capability " + commands.InlineFiles}
	}
	data, trace := strings.Repeat("\x00\xff\n", 1000), t.trace()
	spawn := &commands.Spawn{Task: forge.NewID(), Runtime: commands.RuntimeExec, Argv: []string{"./run"}, MaxRetries: 1,
		Files: []commands.File{{Path: "run", Exec: true}, {Path: "in/data"}}, Stdin: true}
	program := "#!/bin/sh\ncat; cat in/data; rm in/data; echo run >> " + trace + `; [ "$(wc -l < ` + trace + `)" -ge 2 ]` + "\n"
	if err := t.completesWith(spawn, program, data, "input\x00"); err != nil {
		return err
	}
	for attempt := 1; attempt <= 2; attempt++ {
		if err := t.wrote(spawn.Task, attempt, "stdout", "input\x00"+data); err != nil {
			return fmt.Errorf("attempt %d: %w", attempt, err)
		}
	}
	return t.filesElsewhere()
}

// filesElsewhere orders files for places that are not below the agent's directory, or not one for each.
func (t *trial) filesElsewhere() error {
	trace := t.trace()
	for _, bad := range []struct {
		dir   string
		paths []string
		code  signing.Code
	}{
		{"", []string{"../out"}, commands.BadPath},
		{"", []string{trace}, commands.BadPath},
		{"", []string{"a", "a/b"}, commands.BadPath},
		{"/", []string{"conformance"}, commands.Validation},
	} {
		spawn := shell("echo ran >> " + trace)
		spawn.Dir = bad.dir
		for _, path := range bad.paths {
			spawn.Files = append(spawn.Files, commands.File{Path: path})
		}
		id := forge.NewID()
		s, err := t.order(t.Valued(spawn, id, make([]string, len(bad.paths))...), func(h *signing.Header) { h.ID = id })
		if err != nil {
			return err
		}
		if _, err := t.refusal(s.ID, bad.code); err != nil {
			return fmt.Errorf("files %q in the directory %q: %w", bad.paths, bad.dir, err)
		}
	}
	return ran(trace)
}

// offers reports whether the last heartbeat of the spoke names a capability.
func (t *trial) offers(capability string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.beats) > 0 && slices.Contains(t.beats[len(t.beats)-1].Capabilities, capability)
}
