package meshtest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub"
)

// Logs returns what the hub has of a task's output; with follow, all of it, once
// the hub says that there is no more to come.
func (m *Mesh) Logs(t testing.TB, id string, follow bool) (lines []hub.LogLine) {
	t.Helper()
	m.EachLog(t, id, follow, func(l hub.LogLine) { lines = append(lines, l) })
	return lines
}

// EachLog is Logs for output that is too much to keep.
func (m *Mesh) EachLog(t testing.TB, id string, follow bool, fn func(hub.LogLine)) {
	t.Helper()
	ctx, done := context.WithCancel(t.Context())
	defer done()
	silence := time.AfterFunc(Patience, done) // it may be much, and take its time
	defer silence.Stop()
	require.NoError(t, m.Hub.client.Follow(ctx, fmt.Sprintf("/api/v1/tasks/%s/logs?follow=%t", id, follow), func(raw json.RawMessage) error {
		var l hub.LogLine
		if err := json.Unmarshal(raw, &l); err != nil {
			return err
		}
		silence.Reset(Patience)
		fn(l)
		return nil
	}))
}

// Stdout returns the bytes that the hub has of a task's standard output.
func (m *Mesh) Stdout(t testing.TB, id string, follow bool) string {
	t.Helper()
	var text []byte
	for _, l := range m.Logs(t, id, follow) {
		if l.Stream == "stdout" {
			text = append(text, l.Data...)
		}
	}
	return string(text)
}
