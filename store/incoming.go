package store

import (
	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// An Incoming is an authentic message as it was opened, and then what became of
// it.
type Incoming struct {
	Conn     string
	Header   signing.Header
	Digest   signing.Digest
	Envelope []byte
	Body     commands.Body         // nil when the body could not be read
	Unread   bool                  // a result that could not be read: it is refused, and its task has ended. Body is what is known of that
	Asks     bool                  // it asks for something: a refusal is answered, and it needs a grant
	Refusal  *commands.Refused     // why it is not acted on; nil = act
	Later    error                 // a fault of this host that keeps it from being judged: it is left, and comes again
	Aside    string                // what the audit here says of the refusal besides, and its sender is not told
	Policy   string                // version of the policy that was asked about it; "" = none was
	Reasons  []commands.TaskReason // why the task that is asked about does not start; nil = nobody has looked
	Left     bool                  // the order of the task that is asked about is left, as [Incoming.Later] says
	Account  string                // whose limits its agent meets, as the policy says; "" = nobody's

	// Set by [DB.TakeIn]: Code is "" when the message was acted on.
	Code signing.Code
	Why  string
	Told bool // its refusal has an audit row of its own
	Late bool // it tells of a task that had ended here before, and has changed nothing

	answered bool // with a refusal

	forgotten bool // refused for what its sender may have lost in a restore, and so cannot keep to

	Effect any // what act leaves for those who are told after the commit
}

// Task returns the task that the message is about, "" for none and where its body
// could not be read.
func (m *Incoming) Task() string {
	if m.Body == nil {
		return ""
	}
	return m.Body.TaskID()
}

// Re returns the reference that an answer to the message carries. It names the body,
// which a message that is sealed anew keeps.
func (m *Incoming) Re() *signing.Ref {
	return &signing.Ref{ID: m.Header.ID, SHA256: m.Header.Body.SHA256}
}

// Refuse records that the message is not acted on, inside act of [DB.TakeIn]. One
// that asks is answered.
func (m *Incoming) Refuse(tx *Tx, r *commands.Refused) {
	m.Code, m.Why = r.Code, r.Why
	if m.answered = m.Asks; !m.Asks {
		return
	}
	body := &commands.RefusedBody{Task: m.Task(), Code: r.Code, Why: commands.CleanReason(r.Why), Hint: commands.CleanReason(r.Hint)}
	if r == m.Refusal { // else the policy did not decide this
		body.Policy = m.Policy
	}
	m.Answer(tx, body)
}

// Answer queues an answer to the message.
func (m *Incoming) Answer(tx *Tx, body commands.Body) {
	tx.Send(Draft{Conn: m.Conn, Body: body, Re: m.Re()})
}

// Note adds an audit row about the message, inside act of [DB.TakeIn].
func (m *Incoming) Note(tx *Tx, action, why string) {
	tx.Audit(AuditRow{Actor: string(m.Header.Iss), Action: action, Object: m.Task(), Why: why, Conn: m.Conn, Message: m.Header.ID})
}

// WrongWorkspace refuses a message of a workspace that the connection's grant
// does not name, whatever it says.
func WrongWorkspace(m *Incoming) *commands.Refused {
	return commands.Refuse(commands.Grant, "the grant of this connection does not allow workspace %s", m.Header.Wsp)
}
