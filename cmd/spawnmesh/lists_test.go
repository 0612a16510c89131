package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// oneOfEach makes something for every list to show.
func oneOfEach(t *testing.T, h hand) {
	t.Helper()
	h.ends(h.spawn("--spoke", "attic", "--", "true"))
	for _, line := range []string{"invite --name loft", "backlog create --title x", "backlog create --title y --lane slow", "budget create b --dimension usd --hard 1",
		"quota create q --concurrent 1", "freeze --scope lane:slow --reason x", "schedule create nightly --cron @daily --spoke attic -- true", "webhook create pager https://receiver.invalid/in --state cancelled", "keys rotate"} {
		h.do(strings.Fields(line)...)
	}
	h.do("message", "send", "--type", "x-note", "--payload", "1")
	h.do("message", "poll", "--as", "eve")
	token := filepath.Join(t.TempDir(), "token")
	h.do("token", "create", "--name", "board", "--role", "viewer", "--workspace", "*", "--out", token)
	h.do("context", "add", "elsewhere", "--url", "http://localhost:1", "--token-file", token)
}

// listCommands are the commands that print a list.
func listCommands() (list []string) {
	everyCommand(func(c *cobra.Command, path []string) {
		if c.Name() == "list" && (path[0] == "review" || path[0] == "message" && path[1] == "dead") {
			return // agents by another name, and see TestADeadLetterByHand
		}
		if c.Name() == "list" || c.Name() == "agents" || c.Name() == "retention" {
			list = append(list, strings.Join(path, " "))
		}
	})
	return list
}

// Whatever is listed, a program reads it line by line, one object each.
func TestEveryListIsALineForEach(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	h := hand{t: t, dir: m.Hub.Dir, env: []string{"XDG_CONFIG_HOME=" + t.TempDir()}}
	onSpoke := []string{"--data-dir", m.Spokes["attic"].Dir}
	oneOfEach(t, h)
	h.do(append([]string{"spoke", "profiles", "add", "shell"}, onSpoke...)...)
	all := listCommands()
	require.Subset(t, all, []string{"agents", "audit list", "backlog list", "budget list", "connections list", "context list", "freeze list", "invite list", "keys list", "lane list", "quota list", "retention", "schedule list", "token list", "webhook list"})
	for _, list := range all {
		args := strings.Fields(list)
		if slices.Contains(args, "audit") {
			args = append(args, "--limit", "5") // it may grow meanwhile
		}
		if args[0] == "spoke" {
			args = append(args, onSpoke...)
		}

		names, lines := h.do(append(args, "-o", "name")...), h.do(append(args, "-o", "ndjson")...)

		require.NotEmpty(t, names, list)
		require.Equal(t, strings.Count(names, "\n"), strings.Count(lines, "\n"), "%s:\n%s\n%s", list, names, lines)
		for line := range strings.Lines(lines) {
			var one map[string]any
			require.NoError(t, json.Unmarshal([]byte(line), &one), "%s: %s", list, line)
		}
	}
	var ids []string
	for line := range strings.Lines(h.do("keys", "list", "-o", "ndjson")) {
		var k struct{ ID, Use, Peer string }
		require.NoError(t, json.Unmarshal([]byte(line), &k))
		require.Contains(t, []string{"identity", "signing"}, k.Use)
		ids = append(ids, k.ID)
	}
	require.Equal(t, strings.Fields(h.do("keys", "list", "-o", "name")), ids)
	require.Contains(t, h.do("keys", "rotate", "-o", "ndjson"), `,"signing":[{"id":"`, "what a change answers is one object")
}
