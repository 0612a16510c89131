package store

import (
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
)

// A Question is what an agent has asked people, as its spoke or its hub knows it.
type Question struct {
	ID         string     `json:"id"`
	ShortID    string     `json:"short_id"`
	Task       string     `json:"task"`
	Title      string     `json:"title,omitempty"` // of the agent
	Spoke      string     `json:"spoke,omitempty"` // where the agent runs, of one that this instance ordered
	Hub        string     `json:"hub,omitempty"`   // who ordered the agent, of one that runs here
	Attempt    int        `json:"attempt"`
	Text       string     `json:"text"`
	Options    []string   `json:"options,omitempty"`
	Default    string     `json:"default,omitempty"`
	Data       string     `json:"data,omitempty"`
	AskedAt    time.Time  `json:"asked_at"`
	Deadline   time.Time  `json:"deadline"`
	State      string     `json:"state"` // see [commands.QuestionOpen]
	Answer     string     `json:"answer,omitempty"`
	Reason     string     `json:"reason,omitempty"`
	AnsweredBy string     `json:"answered_by,omitempty"`
	AnsweredAt *time.Time `json:"answered_at,omitempty"`
	Sent       *Sent      `json:"sent,omitempty"` // an answer that its spoke has not confirmed yet
}

// A Sent answer is on its way to a spoke.
type Sent struct {
	Answer string    `json:"answer"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
}

// Asked is q as its spoke tells it to who ordered the agent.
func (q Question) Asked(attempt int) *commands.Question {
	return &commands.Question{Task: q.Task, Attempt: attempt, Question: q.ID, Text: q.Text, Options: q.Options, Default: q.Default, Data: q.Data,
		At: q.AskedAt.UnixMilli(), Deadline: q.Deadline.UnixMilli()}
}
