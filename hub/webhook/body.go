package webhook

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// What a webhook can be told.
const (
	TaskStatusChanged      = "task.status_changed"
	ConnectionStateChanged = "connection.state_changed"
	ConnectionLinkChanged  = "connection.link_changed"
)

// Types are all of them.
var Types = []string{TaskStatusChanged, ConnectionStateChanged, ConnectionLinkChanged}

// What each is told, whatever it wants.
const (
	eventsGap      = "events.gap"      // events with these numbers are not told
	eventsRestored = "events.restored" // the database is one from before
	webhookTest    = "webhook.test"
)

// body is what is sent. It says what has changed, and not what an agent was given or wrote.
type body struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"` // of the event
	Data      any       `json:"data"`
}

type taskData struct {
	Task     string `json:"task"`
	ShortID  string `json:"short_id"`
	Previous string `json:"previous,omitempty"` // absent: it was ordered just now
	State    string `json:"state"`
	Reason   string `json:"reason,omitempty"`
	Spoke    string `json:"spoke,omitempty"`
	Attempt  int    `json:"attempt"`
	Seq      int64  `json:"seq"` // of two events the later one has the higher
}

type connectionData struct {
	Connection string `json:"connection"`
	Spoke      string `json:"spoke,omitempty"` // one of both
	Hub        string `json:"hub,omitempty"`
	State      string `json:"state"`
	Reason     string `json:"reason,omitempty"`
	Seq        int64  `json:"seq"`
}

type gapData struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

type seqData struct {
	Seq int64 `json:"seq"`
}

type testData struct {
	Webhook string `json:"webhook"`
}

// planner says what webhooks are told of events.
var planner = store.Planner{Wants: wants, Tell: tell, Gap: gap}

// kinds are the types of events of the feed.
var kinds = map[store.EventKind]string{store.TaskEvent: TaskStatusChanged, store.ConnectionEvent: ConnectionStateChanged, store.LinkEvent: ConnectionLinkChanged, store.RestoredEvent: eventsRestored}

// wants reports whether w is told of e. An agent may change in other ways than in its state.
func wants(w store.Webhook, e store.Event) bool {
	switch e.Kind {
	case store.RestoredEvent:
		return true
	case store.TaskEvent:
		if e.Previous == e.State || len(w.States) > 0 && !slices.Contains(w.States, e.State) {
			return false
		}
	}
	return slices.Contains(w.Types, kinds[e.Kind])
}

func tell(e store.Event) store.Message {
	var data any = seqData{e.Seq}
	switch e.Kind {
	case store.TaskEvent:
		data = taskData{e.Task, commands.ShortID(e.Task), e.Previous, e.State, e.Reason, spokeOf(e), e.Attempt, e.Seq}
	case store.ConnectionEvent, store.LinkEvent:
		c := connectionData{Connection: e.Conn, Spoke: spokeOf(e), State: e.State, Reason: e.Reason, Seq: e.Seq}
		if e.Role == store.Obeys {
			c.Hub = e.Name
		}
		data = c
	}
	return message("msg", e.Seq, kinds[e.Kind], e.At, data)
}

func spokeOf(e store.Event) string {
	if e.Role == store.Commands {
		return e.Name
	}
	return ""
}

func gap(from, to int64, at time.Time) store.Message {
	return message("gap", to, eventsGap, at, gapData{from, to})
}

func message(prefix string, seq int64, typ string, at time.Time, data any) store.Message {
	raw, _ := json.Marshal(body{typ, at.UTC(), data}) // it is made of what can be one
	return store.Message{Prefix: prefix, Seq: seq, Type: typ, Body: string(raw), At: at}
}
