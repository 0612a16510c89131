package commands

import (
	"strings"
	"unicode/utf8"

	"github.com/spawnmesh/spawnmesh/signing"
)

// A Kind says what a message says.
type Kind string

// The kinds of this version, by message type.
const (
	SpawnKind  Kind = "agent.spawn"
	StatusKind Kind = "agent.status"
	KillKind   Kind = "agent.kill"

	AcceptedKind Kind = "agent.accepted"
	RefusedKind  Kind = "agent.refused"
	StartedKind  Kind = "agent.started"
	EndedKind    Kind = "agent.ended"
	KilledKind   Kind = "agent.killed"
	StateKind    Kind = "agent.state"

	ResultKind Kind = "agent.result"
	LogKind    Kind = "agent.log"

	OutputStoredKind Kind = "agent.output_stored"

	ReceivedKind  Kind = "peer.received"
	HeartbeatKind Kind = "peer.heartbeat"
	RevokedKind   Kind = "peer.revoked"

	KeySetKind Kind = "peer.keyset"
)

// Types gives the message type that each kind travels under.
var Types = map[Kind]signing.Type{
	SpawnKind: signing.Command, StatusKind: signing.Command, KillKind: signing.Command,
	AcceptedKind: signing.Receipt, RefusedKind: signing.Receipt, StartedKind: signing.Receipt,
	EndedKind: signing.Receipt, KilledKind: signing.Receipt, StateKind: signing.Receipt,
	ResultKind: signing.Result, LogKind: signing.Event, OutputStoredKind: signing.Peer,
	ReceivedKind: signing.Peer, HeartbeatKind: signing.Peer, RevokedKind: signing.Peer,
	KeySetKind: signing.KeySet,
}

// A Body is what a message of one kind says.
type Body interface {
	Kind() Kind
	Validate() error
}

// A Message is a message whose body was read too: signed, addressed to this
// instance, in time, and well formed.
type Message struct {
	Opened signing.Opened
	Body   Body
}

// Parse reads the body of o. The error is a [*Refused] or [*signing.Rejected].
func Parse(o signing.Opened) (Message, error) {
	kind := Kind(o.Header().Kind)
	t, known := Types[kind]
	if !known || t != o.Type() || o.Header().Body.Type != string(kind)+".v1" {
		return Message{}, &signing.Rejected{Code: signing.HdrField, Why: "kind " + string(kind) + " is not allowed under this message type"}
	}
	body := newBody(kind)
	if err := decodeBody(o.Body(), body); err != nil {
		return Message{}, err
	}
	if err := body.Validate(); err != nil {
		return Message{}, err
	}
	return Message{o, body}, nil
}

func newBody(kind Kind) Body {
	switch kind {
	case SpawnKind:
		return &Spawn{}
	case StatusKind:
		return &Status{}
	case KillKind:
		return &Kill{}
	case AcceptedKind:
		return &Accepted{}
	case RefusedKind:
		return &RefusedBody{}
	case StartedKind:
		return &Started{}
	case EndedKind:
		return &Ended{}
	case KilledKind:
		return &Killed{}
	case StateKind:
		return &TaskState{}
	case ResultKind:
		return &Result{}
	case LogKind:
		return &Log{}
	case OutputStoredKind:
		return &OutputStored{}
	case ReceivedKind:
		return &Received{}
	case RevokedKind:
		return &Revoked{}
	case KeySetKind:
		return &KeySet{}
	default:
		return &Heartbeat{}
	}
}

func checkTask(id string) error {
	if !signing.ValidUUID(id) {
		return Refuse(Validation, "task %q is not a lower-case UUID of version 4 or 7", clip(id))
	}
	return nil
}

func checkText(name, s string, limit int) error {
	if len(s) > limit {
		return Refuse(Validation, "%s is %d bytes, limit %d", name, len(s), limit)
	}
	if !utf8.ValidString(s) || strings.ContainsRune(s, 0) || strings.ContainsRune(s, utf8.RuneError) {
		return Refuse(Validation, "%s contains a NUL or is not valid UTF-8", name)
	}
	return nil
}

// clip keeps a foreign text short in our own messages.
func clip(s string) string {
	if len(s) > 64 {
		return s[:61] + "..."
	}
	return s
}
