package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// A board is somebody at a terminal who works on one workspace.
type board struct {
	hand
	workspace string
}

// boardsOf runs each scenario at once, in a workspace of its own, beside one hub.
func boardsOf(t *testing.T, scenarios map[string]func(b board)) {
	m := startHub(t)
	t.Run("at once", func(t *testing.T) {
		for name, run := range scenarios {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				run(board{hand{t: t, dir: m.Hub.Dir}, strings.ReplaceAll(name, " ", "-")})
			})
		}
	})
}

func (b board) in(args []string) []string {
	return append(args[:len(args):len(args)], "--workspace", b.workspace)
}

func (b board) run(args ...string) said {
	b.t.Helper()
	return b.hand.run("", b.in(args)...)
}

func (b board) do(args ...string) string {
	b.t.Helper()
	return b.hand.do(b.in(args)...)
}

func (b board) read(v any, args ...string) {
	b.t.Helper()
	b.hand.read(v, 0, b.in(args)...)
}

// refused runs a command line that must end with code and say words to a person,
// and the same with its code to a program.
func (b board) refused(exit int, code commands.Code, words string, args ...string) {
	b.t.Helper()
	b.hand.refused(exit, words, b.in(args)...)
	s := b.run(append(args[:len(args):len(args)], "--json")...)
	require.Equal(b.t, exit, s.code, "%v: %s", args, s.err)
	require.Empty(b.t, s.out)
	var got struct {
		Error struct{ Code, Message, Hint string }
	}
	require.NoError(b.t, json.Unmarshal([]byte(s.err), &got), "%s", s.err)
	require.Equal(b.t, string(code), got.Error.Code, "%s", s.err)
	require.Contains(b.t, got.Error.Message+"\n"+got.Error.Hint, words)
}

// create makes a task with this key.
func (b board) create(key string, args ...string) createdTask {
	b.t.Helper()
	var t createdTask
	b.read(&t, append([]string{"backlog", "create", "--id", key, "--title", "do " + key}, args...)...)
	require.Equal(b.t, key, t.Key)
	return t
}

// claim claims what must be claimable.
func (b board) claim(owner string, args ...string) claim {
	b.t.Helper()
	var c *claim
	b.read(&c, append([]string{"backlog", "claim", "--owner", owner}, args...)...)
	require.NotNil(b.t, c, "nothing was claimable")
	require.Equal(b.t, owner, c.Owner)
	return *c
}

// nothing makes sure that a claim gets nothing.
func (b board) nothing(args ...string) {
	b.t.Helper()
	require.Equal(b.t, "null\n", b.do(append([]string{"backlog", "claim", "--json", "--owner", "nobody"}, args...)...))
}

func (b board) show(ref string) backlog.Task {
	b.t.Helper()
	var t backlog.Task
	b.read(&t, "backlog", "show", ref)
	return t
}

func (b board) why(ref string) backlog.Why {
	b.t.Helper()
	var w backlog.Why
	b.read(&w, "backlog", "why", ref)
	return w
}

// stages are the places of the admission where a task is held.
func stages(w backlog.Why) (list []string) {
	for _, r := range w.Reasons {
		list = append(list, string(r.Code))
	}
	return list
}

// keys are the tasks' own names.
func keys(list []backlog.Task) (names []string) {
	for _, t := range list {
		names = append(names, t.Key)
	}
	return names
}

// waits waits until somebody has asked in vain for a task that "gate" is like.
func (b board) waits() {
	b.t.Helper()
	require.NoError(b.t, fleet.Poll(b.t.Context(), time.Minute, "waiting for a claimer who waits", func() (bool, error) {
		return len(b.why("gate").By) > 0, nil
	}))
}
