package acp

import (
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/acp/wire"
)

const (
	maxTranscript = 4 << 20 // bytes that are written of one attempt
	maxTextLine   = 4 << 10
)

// A transcript is what an agent says and does, for people: lines of plain text.
type transcript struct {
	mu      sync.Mutex
	to      io.Writer
	left    int
	partial strings.Builder
	message strings.Builder // the last one of the agent, its begin
	over    bool            // what the agent says next is another one
	id      wire.MessageID
	tools   map[wire.ToolCallID]tool
}

type tool struct {
	kind   wire.ToolKind
	title  string            // of at most maxTitle bytes
	sum    [sha256.Size]byte // of all of it
	status wire.ToolCallStatus
}

// maxTitle is what fits into a question, with its kind and our words.
const maxTitle = commands.MaxQuestion - 256

// String is a tool in one short line.
func (t tool) String() string {
	return or(string(t.kind), "other") + ": " + or(label(t.title), "without a name")
}

// maxTools bounds what is known of tools: each of a turn is named again when it has ended.
const maxTools = 1000

func newTranscript(to io.Writer) *transcript {
	return &transcript{to: to, left: maxTranscript, tools: map[wire.ToolCallID]tool{}}
}

// plain is a text of the agent's without what a terminal would obey.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return r
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			return -1
		}
		return r
	}, commands.Clean(s, len(s)))
}

// says takes a part of a message of the agent.
func (t *transcript) says(id wire.MessageID, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if id != t.id {
		t.begin()
		t.id = id
	}
	if t.over {
		t.message.Reset()
		t.over = false
	}
	text = plain(text)
	if t.message.Len() < commands.MaxSummary {
		t.message.WriteString(text[:min(len(text), commands.MaxSummary)])
	}
	for {
		line, rest, whole := strings.Cut(text, "\n")
		t.partial.WriteString(line)
		if !whole && t.partial.Len() < maxTextLine {
			return
		}
		t.flush()
		if !whole {
			return
		}
		text = rest
	}
}

// begin ends a message: what comes is another one.
func (t *transcript) begin() {
	t.flush()
	t.over = true
}

func (t *transcript) flush() {
	if t.partial.Len() > 0 {
		t.write(t.partial.String())
		t.partial.Reset()
	}
}

func (t *transcript) write(line string) {
	if t.left <= 0 {
		return
	}
	if t.left -= len(line) + 1; t.left <= 0 {
		line = fmt.Sprintf("[the transcript has %d MiB and ends here; the agent goes on]", maxTranscript>>20)
	}
	_, _ = io.WriteString(t.to, line+"\n")
}

// note writes a line of our own.
func (t *transcript) note(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flush()
	t.write("[" + commands.OneLine(commands.Clean(plain(fmt.Sprintf(format, args...)), maxTextLine)) + "]")
}

// uses takes what is said of a tool, and returns what is known of it. A tool that has not changed is not named again.
func (t *transcript) uses(u wire.SessionUpdate) tool {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := wire.ToolCallID(label(string(u.ToolCallID)))
	was, known := t.tools[id]
	is := was
	if u.Kind != "" {
		is.kind = wire.ToolKind(label(string(u.Kind)))
	}
	if u.Title != "" {
		is.title, is.sum = short(u.Title, maxTitle), sha256.Sum256([]byte(u.Title))
	}
	if u.Status != "" {
		is.status = wire.ToolCallStatus(label(string(u.Status)))
	}
	if known && is == was {
		return is
	}
	t.begin()
	t.write(strings.TrimRight(fmt.Sprintf("[%s: %s] %s", or(string(is.kind), "tool"), or(label(is.title), "without a name"), is.status), " "))
	if len(t.tools) < maxTools {
		t.tools[id] = is
	}
	if is.status == wire.ToolCallStatusCompleted || is.status == wire.ToolCallStatusFailed {
		delete(t.tools, id)
	}
	return is
}

// label is a foreign text in one short line.
func label(s string) string { return short(commands.OneLine(plain(s)), 200) }

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// last is the last message.
func (t *transcript) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.summary()
}

// end writes what is left, and returns the last message.
func (t *transcript) end() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flush()
	return t.summary()
}

func (t *transcript) summary() string {
	return commands.Clean(strings.TrimSpace(t.message.String()), commands.MaxSummary)
}
