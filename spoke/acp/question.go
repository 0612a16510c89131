package acp

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/acp/wire"
	"github.com/spawnmesh/spawnmesh/spoke/door"
)

// question is what a person is asked about a tool: all that the agent has said of it, and where that is too long, that it was cut.
func question(t tool, p wire.RequestPermissionRequest) (q door.Ask) {
	q.Text = "may the agent do this? " + or(string(t.kind), "other") + ": " + or(t.title, "without a name")
	var data []string
	if len(plain(p.ToolCall.Title)) > maxTitle {
		data = append(data, p.ToolCall.Title)
	}
	if text := pretty(p.ToolCall.RawInput); text != "" {
		data = append(data, text)
	}
	for _, c := range p.ToolCall.Content {
		if text := shown(c); text != "" {
			data = append(data, text)
		}
	}
	for n, o := range p.Options[:min(len(p.Options), commands.MaxOptions)] {
		whole := commands.OneLine(plain(o.Name))
		name := short(whole, commands.MaxOption)
		if name == "" || slices.Contains(q.Options, name) {
			name = fmt.Sprintf("%d %s", n+1, short(whole, commands.MaxOption-8))
		}
		if len(whole) > commands.MaxOption {
			data = append(data, fmt.Sprintf("option %q: %s", name, whole))
		}
		q.Options = append(q.Options, name)
		if o.Kind == wire.PermissionOptionKindRejectOnce && q.Default == "" {
			q.Default = name
		}
	}
	q.Data = short(strings.Join(data, "\n\n"), commands.MaxQuestionData)
	return q
}

// digest is the same for what an agent asks again in another attempt, and for nothing else: it is of what the agent has said, uncut, without its ids.
func digest(t tool, p wire.RequestPermissionRequest) string {
	options := slices.Clone(p.Options)
	for n := range options {
		options[n].OptionID = ""
	}
	raw, _ := json.Marshal([]any{t.kind, t.sum, p.ToolCall.RawInput, p.ToolCall.Content, options})
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16])
}

// shown is what an agent shows of a tool, for people.
func shown(c wire.ToolCallContent) string {
	switch {
	case c.Type == "diff":
		return fmt.Sprintf("%s is to have:\n%s", c.Path, c.NewText)
	case c.Content != nil && c.Content.Resource != nil:
		return strings.TrimSpace(c.Content.Resource.Uri + "\n" + c.Content.Resource.Text)
	case c.Content != nil:
		return or(c.Content.Text, c.Content.Uri)
	}
	return ""
}

// pretty is JSON for people.
func pretty(raw json.RawMessage) string {
	var text bytes.Buffer
	if len(raw) == 0 || string(raw) == "null" || json.Indent(&text, raw, "", "  ") != nil {
		return ""
	}
	return text.String()
}

// short is a text of an agent's of at most limit bytes, which says that it was cut.
func short(s string, limit int) string {
	const mark = " [cut]"
	if s = plain(s); len(s) > limit {
		s = commands.Clean(s, limit-len(mark)) + mark
	}
	return s
}
