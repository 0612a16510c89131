package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
)

// What an agent was labelled with is shown wherever it is shown in full.
func showLabels(t *testing.T, h hand) {
	order := []string{"--spoke", "attic", "--runtime", "noop", "--label", "batch=" + newID(), "--label", "empty="}
	id := h.spawn(order...)
	var v hub.AgentView
	h.read(&v, 0, "status", id)
	require.Len(t, v.Labels, 2)
	text := labelText(v.Labels)

	require.Regexp(t, `^batch=[-0-9a-f]+,empty=$`, text)
	require.Regexp(t, `(?m)^labels +`+text+`$`, h.do("status", id))
	require.Regexp(t, `(?m)^`+commands.ShortID(id)+` .* `+text+` +`+id+`$`, h.do("agents", "-o", "wide", "--limit", "1000"))

	key := []string{"spawn", "--spoke", "attic", "--runtime", "noop", "--idempotency-key", newID(), "--label"}
	h.do(append(key, "app=web")...)
	h.refused(exitConflict, "other content", append(key, "app=db")...)
	for words, label := range map[string]string{"has no =": "app", "is given twice": "app=db", "may be empty": "=x", "letters, digits": "app name=x"} {
		h.refused(exitMisuse, words, "spawn", "--spoke", "attic", "--label", "app=web", "--label", label, "--", "true")
	}
}
