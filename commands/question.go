package commands

import (
	"slices"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/signing"
)

// Limits of questions of agents, and of their answers, in bytes where nothing else is said.
const (
	MaxQuestion        = 4 << 10
	MaxQuestionData    = 16 << 10
	MaxOptions         = 16 // of a question
	MaxOption          = 64
	MaxAnswer          = 4 << 10
	MaxQuestions       = 100 // of a task
	DefaultQuestionFor = 24 * time.Hour
	MaxQuestionFor     = 30 * 24 * time.Hour
)

// Deny is the option that a question falls back to that names no other one.
const Deny = "deny"

// A Question is what an agent asks a person, and waits for.
type Question struct {
	Task     string   `json:"task"`
	Attempt  int      `json:"attempt"`
	Question string   `json:"question"` // its id
	Text     string   `json:"text"`
	Options  []string `json:"options,omitempty"` // the answers that there are; none = any text
	Default  string   `json:"default,omitempty"` // the answer where nobody gives one in time; "" = none
	Data     string   `json:"data,omitempty"`    // more of it, for who answers
	At       int64    `json:"at"`                // ms since 1970, the spoke's database clock
	Deadline int64    `json:"deadline"`
}

// Kind returns [AskedKind].
func (*Question) Kind() Kind { return AskedKind }

// TaskID returns the task of the agent.
func (q *Question) TaskID() string { return q.Task }

// Validate checks q; the error is a [*Refused].
func (q *Question) Validate() error {
	if err := checkAttempt(q.Task, q.Attempt); err != nil {
		return err
	}
	if err := checkQuestionID(q.Question); err != nil {
		return err
	}
	if err := checkTimes(q.At, q.Deadline); err != nil {
		return err
	}
	if waits := q.Deadline - q.At; waits > (MaxQuestionFor + time.Minute).Milliseconds() { // both are read from a clock that may be set meanwhile
		return Refuse(Validation, "the deadline of the question is %d ms after it was asked, limit %s", waits, MaxQuestionFor)
	}
	return q.CheckText()
}

// CheckText is Validate before it is known who asks, and until when.
func (q *Question) CheckText() error {
	if strings.TrimSpace(q.Text) == "" {
		return Refuse(Validation, "the question is empty").Hinting("say what is to be answered")
	}
	if len(q.Options) > MaxOptions {
		return Refuse(Validation, "the question has %d options, limit %d", len(q.Options), MaxOptions)
	}
	for i, o := range q.Options {
		if err := checkLine("an option of a question", o, MaxOption); err != nil {
			return err
		}
		if o == "" || slices.Contains(q.Options[:i], o) {
			return Refuse(Validation, "option %q of the question is empty, or is there twice", Clip(o))
		}
	}
	if q.Default != "" {
		if err := q.Fits(q.Default); err != nil {
			return err
		}
	}
	if err := checkText("the question", q.Text, MaxQuestion); err != nil {
		return err
	}
	return checkText("the data of a question", q.Data, MaxQuestionData)
}

// Fallback is the answer where nobody gives one in time; "" = there is none.
func (q *Question) Fallback() string {
	if q.Default == "" && slices.Contains(q.Options, Deny) {
		return Deny
	}
	return q.Default
}

// Fits refuses what is no answer to q.
func (q *Question) Fits(answer string) error {
	if strings.TrimSpace(answer) == "" {
		return Refuse(Validation, "the answer is empty")
	}
	if err := checkText("the answer", answer, MaxAnswer); err != nil {
		return err
	}
	if len(q.Options) > 0 && !slices.Contains(q.Options, answer) {
		return Refuse(Validation, "the answer %q is not one of the options: %s", Clip(answer), strings.Join(q.Options, ", "))
	}
	return nil
}

func checkQuestionID(id string) error {
	if !signing.ValidUUID(id) {
		return Refuse(Validation, "question %q is not a lower-case UUID of version 4 or 7", Clip(id))
	}
	return nil
}

// Answer answers a question of an agent. The first answer counts.
type Answer struct {
	Task     string `json:"task"`
	Question string `json:"question"`
	Answer   string `json:"answer"`
	By       string `json:"by"` // who has answered, in words
	Reason   string `json:"reason,omitempty"`
}

// Kind returns [AnswerKind].
func (*Answer) Kind() Kind { return AnswerKind }

// TaskID returns the task of the agent.
func (a *Answer) TaskID() string { return a.Task }

// Validate checks a; the error is a [*Refused].
func (a *Answer) Validate() error {
	if err := checkTask(a.Task); err != nil {
		return err
	}
	if err := checkQuestionID(a.Question); err != nil {
		return err
	}
	if strings.TrimSpace(a.Answer) == "" {
		return Refuse(Validation, "the answer is empty")
	}
	if err := checkText("the answer", a.Answer, MaxAnswer); err != nil {
		return err
	}
	if a.By == "" {
		return Refuse(Validation, "nobody is named who has answered")
	}
	return checkAnswerer(a.By, a.Reason)
}

func checkAnswerer(by, reason string) error {
	if err := checkLine("who has answered", by, 256); err != nil {
		return err
	}
	return CheckReason(reason)
}

// What may become of a question.
const (
	QuestionOpen       = "open"
	QuestionAnswered   = "answered"
	QuestionDefaulted  = "defaulted"  // nobody answered in time: the default is the answer
	QuestionUnanswered = "unanswered" // nobody did, and there is no default
	QuestionWithdrawn  = "withdrawn"  // its agent needs no answer any more, or has ended, or its spoke does not know it
)

// QuestionOutcomes lists what may become of a question.
var QuestionOutcomes = []string{QuestionAnswered, QuestionDefaulted, QuestionUnanswered, QuestionWithdrawn}

// Answered says what became of a question.
type Answered struct {
	Task     string `json:"task"`
	State    State  `json:"state"` // of the task now
	Question string `json:"question"`
	Outcome  string `json:"outcome"` // any but open
	Answer   string `json:"answer,omitempty"`
	By       string `json:"by,omitempty"`
	Reason   string `json:"reason,omitempty"`
	At       int64  `json:"at"` // ms since 1970, the spoke's database clock
}

// Kind returns [AnsweredKind].
func (*Answered) Kind() Kind { return AnsweredKind }

// TaskID returns the task of the agent.
func (a *Answered) TaskID() string { return a.Task }

// Validate checks a; the error is a [*Refused].
func (a *Answered) Validate() error {
	if !slices.Contains(QuestionOutcomes, a.Outcome) {
		return Refuse(Validation, "outcome %q is not an outcome of a question", Clip(a.Outcome))
	}
	if a.State.Terminal() {
		return Refuse(Validation, "what became of a question names the open state that follows, not %q", Clip(string(a.State)))
	}
	for _, err := range []error{checkQuestionID(a.Question), checkText("the answer", a.Answer, MaxAnswer), checkAnswerer(a.By, a.Reason), checkTimes(a.At)} {
		if err != nil {
			return err
		}
	}
	return checkTaskState(a.Task, a.State, NoReason)
}
