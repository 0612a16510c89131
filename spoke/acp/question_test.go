package acp

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/acp/wire"
)

// asking is the tool of a request that an agent sends as JSON, and the request.
func asking(t *testing.T, call string) (tool, wire.RequestPermissionRequest) {
	t.Helper()
	var p wire.RequestPermissionRequest
	raw := `{"sessionId": "s", "toolCall": ` + call + `, "options": [{"optionId": "1", "name": "Allow", "kind": "allow_once"}, {"optionId": "2", "name": "Reject", "kind": "reject_once"}]}`
	require.NoError(t, wire.Decode([]byte(raw), &p))
	c := p.ToolCall
	return newTranscript(io.Discard).uses(wire.SessionUpdate{ToolCallID: c.ToolCallID, Kind: c.Kind, Title: c.Title}), p
}

func text(s string) string {
	raw, _ := json.Marshal(s)
	return string(raw)
}

// A person sees all that an agent wants to do, or that something was cut.
func TestAPersonSeesWhatIsAsked(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, tt := range []struct{ name, call, text, data string }{
		{"a command as title", `{"title": "cat a &&\n` + long + ` rm -rf b", "kind": "execute"}`, "execute: cat a &&\n" + long + " rm -rf b", ""},
		{"a diff", `{"title": "edit", "kind": "edit", "content": [{"type": "diff", "path": "/w/a", "oldText": "a", "newText": "b\nc"}]}`, "edit: edit", "/w/a is to have:\nb\nc"},
		{"words", `{"title": "run", "rawInput": {"id": 7}, "content": [{"type": "content", "content": {"type": "text", "text": "rm -rf"}}]}`, "other: run", "{\n  \"id\": 7\n}\n\nrm -rf"},
		{"a resource", `{"title": "run", "content": [{"type": "content", "content": {"type": "resource", "resource": {"uri": "file:///a", "text": "b"}}}]}`, "other: run", "file:///a\nb"},
	} {
		q := question(asking(t, tt.call))
		require.Equal(t, "may the agent do this? "+tt.text, q.Text, tt.name)
		require.Equal(t, tt.data, q.Data, tt.name)
		require.Equal(t, []any{[]string{"Allow", "Reject"}, "Reject"}, []any{q.Options, q.Default})
	}
	long = strings.Repeat("y", commands.MaxQuestion)
	q := question(asking(t, `{"title": "`+long+`", "kind": "execute"}`))
	require.Regexp(t, `yyy \[cut\]$`, q.Text)
	require.Equal(t, long, q.Data)
	require.NoError(t, (&commands.Question{Text: q.Text, Options: q.Options, Default: q.Default, Data: q.Data}).CheckText())
	q = question(asking(t, `{"title": "t", "rawInput": `+text(strings.Repeat("z", commands.MaxQuestionData))+`}`))
	require.Regexp(t, `zzz \[cut\]$`, q.Data)
	require.Len(t, q.Data, commands.MaxQuestionData)
	c, p := asking(t, `{"title": "t"}`)
	p.Options[0].Name = "Allow what begins with " + strings.Repeat("w", 60)
	q = question(c, p)
	require.Equal(t, "Allow what begins with wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww [cut]", q.Options[0])
	require.Contains(t, q.Data, p.Options[0].Name)
}

// Two questions are the same where all is that the agent has said, also what a person does not see; its ids are no part of it.
func TestTheSameQuestion(t *testing.T) {
	same := func(a, b string) bool { return digest(asking(t, a)) == digest(asking(t, b)) }
	require.True(t, same(`{"toolCallId": "1", "title": "a", "rawInput": {"b": 1}}`, `{"toolCallId": "2", "title": "a", "rawInput": {"b":1}}`))
	begins := strings.Repeat("x", commands.MaxQuestionData)
	for _, form := range []string{`{"title": "%"}`, `{"title": "t", "rawInput": "%"}`, `{"title": "t", "content": [{"type": "content", "content": {"type": "text", "text": "%"}}]}`,
		`{"title": "t", "content": [{"type": "diff", "path": "p", "newText": "n", "oldText": "%"}]}`} {
		require.False(t, same(strings.ReplaceAll(form, "%", begins+"1"), strings.ReplaceAll(form, "%", begins+"2")), form)
	}
	c, p := asking(t, `{"title": "t"}`)
	before := digest(c, p)
	p.Options[0].OptionID = "other"
	require.Equal(t, before, digest(c, p))
	p.Options[0].Kind = wire.PermissionOptionKindAllowAlways
	require.NotEqual(t, before, digest(c, p))
}

// What was answered in attempts before is known before an agent asks, also in a session that is taken up: it is no answer to what is asked now.
func TestWhatWasAnsweredBeforeIsKnown(t *testing.T) {
	r := newRun(&Adapter{Session: "s-1", Before: []byte(`{"version": 1, "said": "half of it", "plan": ["[pending] a"], "answers": {"d": 2}}`)})
	require.Equal(t, kept{Version: 1, Said: "half of it", Plan: []string{"[pending] a"}, Answers: map[string]int{"d": 2}}, r.desk.kept)
	for _, before := range []string{"", "any text", `{"version": 2, "answers": {"d": 2}}`, `{"version": 1}`} {
		require.Equal(t, kept{Version: 1, Answers: map[string]int{}}, newRun(&Adapter{Before: []byte(before)}).desk.kept, before)
	}
}

// Two tools for which the same is asked at a time are asked for one after the other, so that one answer is for one of them.
func TestTheSameQuestionWaitsForItsTurn(t *testing.T) {
	d := newDesk(nil, nil)
	leave, err := d.turn(t.Context(), "a")
	require.NoError(t, err)
	other, err := d.turn(t.Context(), "b")
	require.NoError(t, err)
	other()
	over, end := context.WithCancel(t.Context())
	end()
	_, err = d.turn(over, "a")
	require.ErrorIs(t, err, context.Canceled)

	leave()

	leave, err = d.turn(t.Context(), "a")
	require.NoError(t, err)
	leave()
}
