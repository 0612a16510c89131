package webhook

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// What a webhook can be told.
const (
	TaskStatusChanged      = "task.status_changed"
	AgentProgress          = "agent.progress"
	AgentOverrun           = "agent.overrun"
	ConnectionStateChanged = "connection.state_changed"
	ConnectionLinkChanged  = "connection.link_changed"
)

// Types are all of them.
var Types = []string{TaskStatusChanged, AgentProgress, AgentOverrun, ConnectionStateChanged, ConnectionLinkChanged}

// What each is told, whatever it wants.
const (
	eventsGap      = "events.gap"      // events with these numbers may not have been told
	eventsRestored = "events.restored" // the database is one from before
	webhookTest    = "webhook.test"
)

// body is what is sent. It says what has changed, and not what an agent was given or wrote: of its own words only the
// step and the unit of its progress, which are a line of few bytes, without the values that its spoke keeps secret. Of a
// connection it has the words of who suspended, resumed or ended it.
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

type agentData struct {
	Task     string        `json:"task"`
	ShortID  string        `json:"short_id"`
	Spoke    string        `json:"spoke,omitempty"`
	Attempt  int           `json:"attempt"`
	Progress *progressData `json:"progress,omitempty"`
	Seq      int64         `json:"seq"`
}

type progressData struct {
	commands.Progress
	Percent *int `json:"percent,omitempty"`
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
var kinds = map[store.EventKind]string{store.TaskEvent: TaskStatusChanged, store.ProgressEvent: AgentProgress, store.OverrunEvent: AgentOverrun,
	store.ConnectionEvent: ConnectionStateChanged, store.LinkEvent: ConnectionLinkChanged, store.RestoredEvent: eventsRestored}

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
	case store.ProgressEvent, store.OverrunEvent:
		data = agentData{e.Task, commands.ShortID(e.Task), spokeOf(e), e.Attempt, progressOf(e), e.Seq}
	case store.ConnectionEvent, store.LinkEvent:
		c := connectionData{Connection: e.Conn, Spoke: spokeOf(e), State: e.State, Reason: e.Reason, Seq: e.Seq}
		if e.Role == store.Obeys {
			c.Hub = e.Name
		}
		data = c
	}
	m := message(kinds[e.Kind], e.At, data)
	m.Prefix, m.Number, m.First = "msg", strconv.FormatInt(e.Seq, 10), e.Seq
	return m
}

func progressOf(e store.Event) *progressData {
	if e.Progress == nil {
		return nil
	}
	return &progressData{e.Progress.Progress, e.Progress.Percent()}
}

func spokeOf(e store.Event) string {
	if e.Role == store.Commands {
		return e.Name
	}
	return ""
}

func gap(from, to int64, at time.Time) store.Message {
	m := message(eventsGap, at, gapData{from, to})
	m.Prefix, m.Number, m.First = "gap", fmt.Sprintf("%d-%d", from, to), from
	return m
}

func message(typ string, at time.Time, data any) store.Message {
	raw, _ := json.Marshal(body{typ, at.UTC(), data}) // it is made of what can be one
	return store.Message{Type: typ, Body: string(raw), At: at}
}
