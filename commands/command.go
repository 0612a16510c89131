package commands

import "github.com/spawnmesh/spawnmesh/signing"

// A Message is a message whose body was read too: signed, addressed to this
// instance, in time, and well formed.
type Message struct {
	Opened signing.Opened
	Body   Body
}

// Parse reads the body of o. The error is a [*Refused] or [*signing.Rejected].
func Parse(o signing.Opened) (Message, error) {
	kind := Kind(o.Header().Kind)
	if kind.Type() == "" || kind.Type() != o.Type() || o.Header().Body.Type != string(kind)+".v1" {
		return Message{}, &signing.Rejected{Code: signing.HdrField, Why: "kind " + string(kind) + " is not allowed under this message type"}
	}
	body := kinds[kind].body()
	if err := decodeBody(o.Body(), body); err != nil {
		return Message{}, err
	}
	if s, ok := body.(*TaskState); ok {
		s.understand()
	}
	if err := body.Validate(); err != nil {
		return Message{}, err
	}
	return Message{o, body}, nil
}

func checkTask(id string) error {
	if !signing.ValidUUID(id) {
		return Refuse(Validation, "task %q is not a lower-case UUID of version 4 or 7", Clip(id))
	}
	return nil
}
