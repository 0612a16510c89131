package messages

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// A Message is one of the log.
type Message struct {
	Seq         int64
	Workspace   string // or the id of a connection, whose agents speak with each other here
	ID          string
	At          time.Time
	From        string
	To          string // "": every reader of the workspace
	Type        string
	Correlation string // names a conversation; of one about a task, the id of the task
	InReplyTo   string // the id of another message
	Payload     string // JSON, or
	Blob        string // the digest of bytes, which are JSON
	By          string // who gave it to the instance
	Size        int64  // of the payload, or of what the blob has
	Again       bool   // it was a dead letter of its reader
}

// Types are those with a meaning that everybody shares. Others begin with x-.
var Types = []string{"task_assign", "task_claim", "task_progress", "task_done", "task_failed", "task_blocked", "heartbeat", "state_change",
	"review_request", "review_result", "agent_started", "agent_stopped"}

// MaxPayload is how many bytes of JSON a message has; what is more goes by a blob.
const MaxPayload = 4096

// How many bytes of blobs a reader is given with their messages: of one, and of a page.
const (
	MostOfBlob  = 256 << 10
	MostOfBlobs = 4 << 20
)

// Fitting is how many messages of a list are a page: what blobs have that a reader is given with them fits into it.
func Fitting(list []Message) int {
	left := int64(MostOfBlobs)
	for i, m := range list {
		if m.Blob == "" || m.Size > MostOfBlob {
			continue
		}
		if left -= m.Size; left < 0 {
			return i
		}
	}
	return len(list)
}

const (
	maxName        = 100
	maxCorrelation = 200
)

var (
	otherType = regexp.MustCompile(`^x-[a-z0-9][a-z0-9_.-]{0,60}$`)
	aName     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@-]*$`)
	aDigest   = regexp.MustCompile(`^sha256-[0-9a-f]{64}$`)
)

// Agent is the name of the agent of a task.
func Agent(task string) string { return agents + task }

// Names that nobody may choose: those of agents, and of tokens.
const (
	agents = "agent:"
	tokens = "token:"
)

// CheckName refuses what is no name of a sender or a reader. Of the reserved ones only own is one that the caller may speak as.
func CheckName(name, own string) error {
	switch {
	case name == own:
	case strings.HasPrefix(name, agents), strings.HasPrefix(name, tokens):
		return commands.Refuse(commands.Forbidden, "nobody else speaks or reads as %s", commands.Clip(name)).Hinting("names that begin with %s and %s are those of agents and of tokens", agents, tokens)
	}
	return checkName(name)
}

func checkName(name string) error {
	if len(name) > maxName || !aName.MatchString(name) {
		return commands.Refuse(commands.Validation, "%q is no name of a sender or reader", commands.Clip(name)).Hinting("it has letters, digits and ._:@-, at most %d", maxName)
	}
	return nil
}

// Prepare gives the message an id where it has none, and its payload the spelling by which two are compared.
func (m *Message) Prepare() error {
	if m.ID == "" {
		m.ID = uuid.Must(uuid.NewV7()).String()
	}
	if m.Payload != "" {
		text, err := compact(m.Payload)
		if err != nil {
			return err
		}
		m.Payload = text
	}
	return m.check()
}

func (m *Message) check() error {
	if err := checkName(m.From); err != nil {
		return err
	}
	if m.To != "" {
		if err := checkName(m.To); err != nil {
			return err
		}
	}
	switch {
	case !signing.ValidUUID(m.ID):
		return commands.Refuse(commands.Validation, "the id of a message is a UUID in lower case, not %q", commands.Clip(m.ID))
	case m.InReplyTo != "" && !signing.ValidUUID(m.InReplyTo):
		return commands.Refuse(commands.Validation, "in_reply_to is the id of a message, not %q", commands.Clip(m.InReplyTo))
	case !slices.Contains(Types, m.Type) && !otherType.MatchString(m.Type):
		return commands.Refuse(commands.Validation, "there is no type of messages %q", commands.Clip(m.Type)).Hinting("it is %s, or one of your own that begins with x-", strings.Join(Types, ", "))
	case len(m.Correlation) > maxCorrelation || m.Correlation != commands.CleanLine(m.Correlation, maxCorrelation):
		return commands.Refuse(commands.Validation, "the correlation id is one line of at most %d bytes", maxCorrelation)
	case m.Payload != "" && m.Blob != "":
		return commands.Refuse(commands.Validation, "a message has a payload or a blob, not both")
	case len(m.Payload) > MaxPayload:
		return commands.Refuse(commands.PayloadTooLarge, "the payload is %d bytes of JSON, and a message takes %d", len(m.Payload), MaxPayload).
			Hinting("send the bytes first (POST /api/v1/blobs), and name them in payload_ref")
	case m.Blob != "" && !aDigest.MatchString(m.Blob):
		return commands.Refuse(commands.Validation, "payload_ref is the digest of a blob, sha256- and 64 hex digits, not %q", commands.Clip(m.Blob))
	}
	return nil
}

// compact is the one spelling of a JSON value: without spaces, keys in order, numbers as they were written.
func compact(text string) (string, error) {
	wrong := commands.Refuse(commands.Validation, "the payload is no JSON value")
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	if !utf8.ValidString(text) || dec.Decode(&v) != nil || dec.More() {
		return "", wrong
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return "", wrong
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}
