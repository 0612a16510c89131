package door

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

// What is hidden in JSON leaves JSON, with all else as it was written.
func TestDataWithSecretsStaysJSON(t *testing.T) {
	t.Parallel()
	d := &Door{room: Room{Hide: strings.NewReplacer("481516", "*", "true", "*", `"a":`, "*", "hunter2", "*", "nabcd", "*").Replace}}
	for name, x := range map[string]struct{ said, want string }{
		"nothing":              {`{"x": 1e999999, "y" : [null] }`, `{"x": 1e999999, "y" : [null] }`},
		"a number":             {`{"x": 481516, "y": 2}`, `{"x": "*", "y": 2}`},
		"a part of a number":   {`[-481516.5e3, 1]`, `["-*.5e3", 1]`},
		"a word":               {`{"x": true, "y": false}`, `{"x": "*", "y": false}`},
		"all of it":            {`481516`, `"*"`},
		"a part of a string":   {`{"x": "I am hunter2!", "y": "b"}`, `{"x": "I am *!", "y": "b"}`},
		"a name":               {`{"hunter2": 1}`, `{"*": 1}`},
		"in escapes":           {`{"x": "\u0068unter2 \"é"}`, `{"x": "* \"é"}`},
		"a part of an escape":  {`["x\nabcd"]`, `["x\\*"]`},
		"structure":            {`{"a":1, "b":481516}`, `"{*1, \"b\":\"*\"}"`},
		"quotes in the string": {`["\"hunter2\\", 1]`, `["\"*\\", 1]`},
	} {
		text := x.said
		require.NoError(t, d.hideData(t.Context(), &text))
		require.Equal(t, x.want, text, name)
		require.True(t, json.Valid([]byte(text)), name)
	}
	text := `{"x": hunter2`
	require.NoError(t, d.hideData(t.Context(), &text))
	require.Equal(t, `{"x": *`, text, "what is no JSON")
}

// What an agent says is looked through once for each value, not at all where it is larger than it may be, only in its
// turn, and no longer than somebody waits for the answer.
func TestWhatAnAgentSaysIsLookedThroughInBounds(t *testing.T) {
	t.Parallel()
	var looks atomic.Int64
	d := &Door{heavy: make(chan struct{}, 1), room: Room{Hide: func(text string) string {
		looks.Add(1)
		return text
	}}}
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/", nil)
	values := func(n int) string { return "[" + strings.Repeat("1,", n-1) + "1]" }
	_, err := d.ask(r, Ask{Key: "k", Text: "may I?", Data: values(commands.MaxQuestionData / 2)})
	require.Equal(t, commands.Validation, commands.CodeOf(err))
	_, err = d.ask(r, Ask{Key: "k", Text: "may I?", Options: make([]string, 100_000)})
	require.Equal(t, commands.Validation, commands.CodeOf(err))
	_, err = d.done(r, Done{Data: values(commands.MaxData / 2)})
	require.Equal(t, commands.Validation, commands.CodeOf(err))
	long := strings.Repeat("x", maxBody-100)
	refused := map[string]error{}
	_, refused["a key"] = d.ask(r, Ask{Key: long, Text: "may I?"})
	_, refused["a summary"] = d.done(r, Done{Summary: long})
	_, refused["a reason"] = d.fail(r, Failed{Reason: long})
	_, refused["a step"] = d.progress(r, commands.Progress{Step: long})
	_, refused["a unit"] = d.progress(r, commands.Progress{Unit: long})
	_, refused["a session"] = d.session(r, Session{ID: long})
	d.room.Work = workAt(t, t.TempDir())
	_, refused["the name of a file"] = d.describe(t.Context(), []Named{{Name: long, Path: "x"}})
	_, refused["the path of a file"] = d.describe(t.Context(), []Named{{Name: "x", Path: long}})
	for name, err := range refused {
		require.Equal(t, commands.Validation, commands.CodeOf(err), "%s: %v", name, err)
	}
	require.Zero(t, looks.Load(), "what is too large")

	text := values(1000)
	require.NoError(t, d.hideData(t.Context(), &text))
	require.EqualValues(t, 1000+1, looks.Load(), "each value, and what is between them")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	looks.Store(0)
	require.ErrorIs(t, d.hideData(ctx, &text), context.Canceled)
	d.heavy <- struct{}{}
	_, err = d.ask(r.WithContext(ctx), Ask{Key: "k", Text: "may I?", Data: text})
	require.ErrorIs(t, err, context.Canceled)
	_, err = d.fail(r.WithContext(ctx), Failed{Reason: "x"})
	require.ErrorIs(t, err, context.Canceled)
	_, err = d.progress(r.WithContext(ctx), commands.Progress{Step: "x"})
	require.ErrorIs(t, err, context.Canceled)
	_, err = d.session(r.WithContext(ctx), Session{ID: "x"})
	require.ErrorIs(t, err, context.Canceled)
	_, err = d.describe(ctx, []Named{{Name: "x", Path: "x"}})
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, looks.Load(), "nobody waits for it, or others are in their turn")
}
