package node

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/feed"
	"github.com/spawnmesh/spawnmesh/store"
)

var update = flag.Bool("update", false, "write testdata/viewer.golden anew")

// fill gives every field below v a value that is not its zero.
func fill(v reflect.Value) {
	switch v.Interface().(type) {
	case json.RawMessage, api.JSON:
		v.SetBytes([]byte(`"marker"`))
		return
	case json.Number:
		v.SetString("7")
		return
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(7, 0).UTC()))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("marker")
	default:
		v.SetInt(7)
	}
}

// leaves are the values of a document by their paths.
func leaves(t *testing.T, name string, v any) map[string]string {
	t.Helper()
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	var doc any
	require.NoError(t, json.Unmarshal(raw, &doc))
	all := map[string]string{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, of := range v {
				walk(path+"."+key, of)
			}
		case []any:
			for _, of := range v {
				walk(path+"[]", of)
			}
		default:
			text, _ := json.Marshal(v) // it was read from JSON
			all[path] = string(text)
		}
	}
	walk(name, doc)
	return all
}

// ended is a result with every field.
func ended(t *testing.T) json.RawMessage {
	t.Helper()
	var r commands.Result
	fill(reflect.ValueOf(&r).Elem())
	raw, err := json.Marshal(r)
	require.NoError(t, err)
	return raw
}

// Each field of what a viewer gets is shown or hidden as somebody has decided: who adds one reads it in the diff of the
// golden file, which -update writes.
func TestEveryFieldIsShownOrHidden(t *testing.T) {
	t.Parallel()
	viewer := control.WithCaller(t.Context(), control.Holder("board", api.Access{Role: api.Viewer, Workspace: api.Everywhere}))
	operator := control.WithCaller(t.Context(), control.Holder("ann", api.Access{Role: api.Operator, Workspace: api.Everywhere}))
	var task api.Task
	var card api.BacklogTask
	var row api.AuditRow
	var schedule api.Schedule
	var fire api.Fire
	var event store.Event
	for _, v := range []any{&task, &card, &row, &schedule, &fire, &event} {
		fill(reflect.ValueOf(v).Elem())
	}
	var lines []string
	compare := func(name string, all, some any) {
		shown := leaves(t, name, some)
		for path, value := range leaves(t, name, all) {
			word := "hidden"
			if shown[path] == value {
				word = "shown"
			}
			lines = append(lines, path+" "+word)
		}
	}
	compare("task", task, seen(viewer, task))
	task.State, task.Result = api.TaskState(commands.Completed), ended(t)
	compare("result", resultOf(operator, task), resultOf(viewer, task))
	compare("backlog_task", card, seenCard(viewer, card))
	compare("schedule", schedule, seenSchedule(viewer, schedule))
	compare("fire", fire, seenFire(viewer, fire))
	compare("event", toldTo(t, operator, event), toldTo(t, viewer, event))
	for _, row.Action = range []string{"task.refused", "connection.suspended"} {
		compare("audit."+row.Action, row, seenRow(viewer, row))
	}
	for _, about := range openWhys {
		lines = append(lines, "audit."+about+".*.why shown")
	}
	slices.Sort(lines)
	got := strings.Join(lines, "\n") + "\n"
	const golden = "testdata/viewer.golden"
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)

	require.Equal(t, string(want), got)
}

// toldTo is an event as the stream of who asks has it.
func toldTo(t *testing.T, who context.Context, v store.Event) (line api.EventLine) {
	t.Helper()
	text := eventStream{ctx: who}.text(feed.Told{Event: v, Text: eventText(v)})
	_, data, _ := strings.Cut(string(text), "data: ")
	require.NoError(t, json.Unmarshal([]byte(data), &line))
	return line
}
