package door

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/messages"
)

// A Letter is a message as an agent sends it. Who speaks is the agent.
type Letter struct {
	ID          string          `json:"id,omitempty"` // a UUID by which it is stored once
	To          string          `json:"to,omitempty"` // "": all
	Type        string          `json:"type"`
	Correlation string          `json:"correlation_id,omitempty"`
	InReplyTo   string          `json:"in_reply_to,omitempty"`
	Payload     json.RawMessage `json:"payload,omitempty"`
}

// A Message is one as an agent reads it, spelled as in the API.
type Message struct {
	Seq         int64           `json:"seq"`
	ID          string          `json:"id"`
	At          time.Time       `json:"at"`
	From        string          `json:"from"`
	To          string          `json:"to,omitempty"`
	Type        string          `json:"type"`
	Correlation string          `json:"correlation_id,omitempty"`
	InReplyTo   string          `json:"in_reply_to,omitempty"`
	Payload     json.RawMessage `json:"payload,omitempty"`
	PayloadRef  string          `json:"payload_ref,omitempty"`
	Again       bool            `json:"again,omitempty"`
	Known       bool            `json:"known,omitempty"`
}

// A Poll asks for what the agent has not acknowledged.
type Poll struct {
	Limit  int   `json:"limit,omitempty"`   // 0 = 100
	WaitMS int64 `json:"wait_ms,omitempty"` // 30 s at most
}

// Polled is what is next for the agent.
type Polled struct {
	Items     []Message  `json:"items"`
	Acked     int64      `json:"acked"`
	DroppedAt *time.Time `json:"dropped_at,omitempty"`
}

// An Ack acknowledges all messages up to a number, or says why that one has failed.
type Ack struct {
	Seq    int64  `json:"seq"`
	Failed string `json:"failed,omitempty"`
}

// Acked is how far the agent is.
type Acked struct {
	Name  string `json:"name"`
	Acked int64  `json:"acked"`
	Head  int64  `json:"head,omitempty"`
	Tries int    `json:"tries,omitempty"`
}

func (d *Door) self() string { return messages.Agent(d.room.Fence.Task) }

// holds refuses an attempt that was replaced.
func (d *Door) holds(r *http.Request) error {
	_, err := d.room.Backlog.Heard(r.Context(), d.room.Fence)
	return err
}

func (d *Door) send(r *http.Request, l Letter) (Message, error) {
	m := messages.Message{Workspace: d.room.Workspace, ID: l.ID, From: d.self(), To: l.To, Type: l.Type, Correlation: l.Correlation, InReplyTo: l.InReplyTo, Payload: string(l.Payload), By: d.self()}
	if err := d.hideIn(r.Context(), m.Prepare, &m.Payload, &m.Correlation); err != nil {
		return Message{}, err
	}
	if err := d.holds(r); err != nil {
		return Message{}, err
	}
	m, known, err := d.room.Messages.Publish(r.Context(), m)
	v := readOf(m)
	v.Known = known
	return v, err
}

func (d *Door) poll(r *http.Request, p Poll) (page Polled, err error) {
	if p.Limit == 0 {
		p.Limit = mostPolled
	}
	if p.Limit < 0 || p.Limit > mostPolled || p.WaitMS < 0 {
		return page, commands.Refuse(commands.Validation, "limit is a number from 1 to %d, and wait_ms not negative", mostPolled)
	}
	if err := d.holds(r); err != nil {
		return page, err
	}
	wait := min(time.Duration(min(p.WaitMS, longestWait.Milliseconds()))*time.Millisecond, longestWait)
	got, err := d.room.Messages.Poll(r.Context(), d.room.Workspace, d.self(), p.Limit, time.Now().Add(wait))
	page = Polled{Items: make([]Message, len(got.Messages)), Acked: got.Acked, DroppedAt: got.DroppedAt}
	for i, m := range got.Messages {
		page.Items[i] = readOf(m)
	}
	return page, err
}

const (
	mostPolled = 100 // messages at once
	maxWhy     = 200 // bytes of why one has failed
)

func (d *Door) ack(r *http.Request, a Ack) (Acked, error) {
	if err := d.holds(r); err != nil {
		return Acked{}, err
	}
	fits := func() error {
		if len(a.Failed) > maxWhy {
			return commands.Refuse(commands.Validation, "failed has at most %d bytes", maxWhy)
		}
		return nil
	}
	if err := d.hideIn(r.Context(), fits, nil, &a.Failed); err != nil {
		return Acked{}, err
	}
	var v messages.Reader
	var err error
	if a.Failed != "" {
		v, err = d.room.Messages.Fail(r.Context(), d.room.Workspace, d.self(), a.Seq, a.Failed)
	} else {
		v, err = d.room.Messages.Ack(r.Context(), d.room.Workspace, d.self(), a.Seq)
	}
	return Acked{v.Name, v.Acked, v.Head, v.Tries}, err
}

func readOf(m messages.Message) Message {
	v := Message{Seq: m.Seq, ID: m.ID, At: m.At, From: m.From, To: m.To, Type: m.Type, Correlation: m.Correlation, InReplyTo: m.InReplyTo, PayloadRef: m.Blob, Again: m.Again}
	if m.Payload != "" {
		v.Payload = json.RawMessage(m.Payload)
	}
	return v
}
