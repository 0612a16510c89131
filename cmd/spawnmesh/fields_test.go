package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub/api"
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
