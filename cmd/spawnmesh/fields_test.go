package main

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/store"
)

// namesIn are the names that JSON has of the fields of a struct.
func namesIn(v any) (names []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); f.IsExported() && name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// What the API serves is read into structs of the command line: a field that these lack would be in no JSON that it prints.
func TestNoFieldOfTheAPIIsLost(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ served, shown any }{
		"an agent": {api.Task{}, struct {
			agentView
			Ordered bool `json:"kill_ordered"` // of the answer to a kill, which is a hub.Killed
		}{}},
		"a connection": {api.Connection{}, connectionView{}},
		"a spoke":      {api.Connection{}, spokeView{}},
	} {
		require.NotEmpty(t, namesIn(tt.served))
		lost := slices.DeleteFunc(namesIn(tt.served), func(field string) bool { return slices.Contains(namesIn(tt.shown), field) })
		require.Empty(t, lost, name)
	}
}

// An agent that takes longer than estimated is said to, with the times that its host knows.
func TestTheTimesOfAnOverrunAreShown(t *testing.T) {
	t.Parallel()
	v := agentView{AgentView: hub.AgentView{Mirror: store.Mirror{Spec: json.RawMessage(`{"estimate_ms":60000}`)}, Overrun: true}}
	require.Equal(t, "1m; it takes much longer, and is ended where it tells no progress", estimateOf(v), "at its hub")
	since := time.Date(2026, 11, 1, 2, 3, 4, 0, time.Local)
	until := since.Add(10 * time.Minute)
	v.OverrunSince, v.OverrunUntil = &since, &until
	require.Equal(t, "1m; it takes much longer since "+localTime(since)+", and is ended at "+localTime(until)+" where it tells no progress", estimateOf(v))
}
