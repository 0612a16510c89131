package store

import (
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
)

// A Question is what an agent has asked people, as its spoke or its hub knows it.
type Question struct {
	ID         string     `json:"id"`
	ShortID    string     `json:"short_id"`
	Key        string     `json:"key,omitempty"` // the agent's own, of one that runs here
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
	HeardAt    time.Time  `json:"-"` // when this instance knew of it, and
	Turn       int        `json:"-"` // while how many others were open: lists are in the order of both
	Deadline   time.Time  `json:"deadline"`
	State      string     `json:"state"` // see [commands.QuestionOpen]
	Answer     string     `json:"answer,omitempty"`
	Reason     string     `json:"reason,omitempty"`
	AnsweredBy string     `json:"answered_by,omitempty"`
	AnsweredAt *time.Time `json:"answered_at,omitempty"`
	Sent       *Sent      `json:"sent,omitempty"` // the answer of this hub; of an open question its spoke has not confirmed it yet
}

// Differs says how what this hub has answered is not what its spoke says; "" where it is, or where nothing was sent.
func (q Question) Differs() string {
	s := q.Sent
	if s == nil || q.State == commands.QuestionOpen || q.State == commands.QuestionAnswered && s.Answer == q.Answer && s.By == q.AnsweredBy {
		return ""
	}
	says := fmt.Sprintf("that it is %s", q.State)
	if q.State == commands.QuestionAnswered {
		says = fmt.Sprintf("%q by %s", commands.Clip(q.Answer), q.AnsweredBy)
	}
	return fmt.Sprintf("this hub sent %q by %s; its spoke says %s", commands.Clip(s.Answer), s.By, says)
}

// Why is an open question as the reason why its agent waits.
func (q Question) Why() commands.WhyReason {
	r := commands.WhyReason{Code: commands.CauseQuestion, Text: "it asks: " + commands.OneLine(q.Text), Since: &q.AskedAt, Until: &q.Deadline}
	if q.Default != "" {
		r.Text += fmt.Sprintf("; if nobody answers, the answer is %q", q.Default)
	}
	switch answer := []string{"spawnmesh", "answer", q.ShortID}; {
	case q.Sent != nil:
		r.Fix = "the answer of " + q.Sent.By + " is sent, and not confirmed yet"
	case len(q.Options) == 0:
		r.Fix = commands.ShellLine(append(answer, "TEXT"))
	default:
		r.Fix = commands.ShellLine(append(answer, "--option", q.Options[0]))
		for _, option := range q.Options[1:] {
			r.Fix += ", or " + commands.ShellLine([]string{"--option", option})
		}
	}
	return r
}

// OpenReasons are the open questions of a list as reasons why their agent waits, in its order.
func OpenReasons(list []Question) (open []commands.WhyReason) {
	for _, q := range list {
		if q.State == commands.QuestionOpen {
			open = append(open, q.Why())
		}
	}
	return open
}

// A Sent answer is what this hub told a spoke.
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
