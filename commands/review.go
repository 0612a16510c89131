package commands

import (
	"slices"
	"strings"
)

// ReviewTaken is the capability of a spoke that keeps what an agent has delivered until it was reviewed.
const ReviewTaken = "review"

const (
	// MaxReworks is how often a review may send a task back.
	MaxReworks = 20
	// MaxReview bounds what a review says to the agent, in bytes.
	MaxReview = 16 << 10
)

// What a review may come to.
const (
	Approve        = "approve"
	RequestChanges = "changes"  // the next attempt goes on with what is to be changed
	Merged         = "merged"   // it was approved, and is where it was to go
	Conflicts      = "conflict" // it was approved, and cannot be merged: the next attempt goes on
)

// Verdicts lists what a review may come to.
var Verdicts = []string{Approve, RequestChanges, Merged, Conflicts}

// A Review says what came of the review of what an attempt has delivered. The first one of an attempt counts; behind an approval
// comes what became of the merge.
type Review struct {
	Task    string `json:"task"`
	Attempt int    `json:"attempt"`
	Verdict string `json:"verdict"`
	Message string `json:"message,omitempty"` // what is to be changed, for the agent
	By      string `json:"by"`                // who decided, in words
}

// Kind returns [ReviewKind].
func (*Review) Kind() Kind { return ReviewKind }

// TaskID returns the task that was reviewed.
func (r *Review) TaskID() string { return r.Task }

// Reworks reports whether the agent is to go on.
func (r *Review) Reworks() bool { return r.Verdict == RequestChanges || r.Verdict == Conflicts }

// Repeats reports whether r says what an earlier verdict on the same attempt has said: what was merged, or could not be, was approved. What is to
// be changed is part of what it says.
func (r *Review) Repeats(verdict, message string) bool {
	if r.Verdict == Approve {
		return verdict != RequestChanges
	}
	return r.Verdict == verdict && (!r.Reworks() || r.Message == message)
}

// Validate checks r; the error is a [*Refused].
func (r *Review) Validate() error {
	if !slices.Contains(Verdicts, r.Verdict) {
		return Refuse(Validation, "verdict %q is none of %s", Clip(r.Verdict), strings.Join(Verdicts, ", "))
	}
	if r.Reworks() && strings.TrimSpace(r.Message) == "" {
		return Refuse(Validation, "the review does not say what is to be changed").Hinting("say it in its message: the agent goes on with that")
	}
	if err := checkText("the message of a review", r.Message, MaxReview); err != nil {
		return err
	}
	if r.By == "" {
		return Refuse(Validation, "nobody is named who has reviewed")
	}
	if err := checkLine("who has reviewed", r.By, 256); err != nil {
		return err
	}
	return checkAttempt(r.Task, r.Attempt)
}

// Delivered reports whether r is what an attempt has delivered for review, and no end of its task.
func (r *Result) Delivered() bool { return r.State == InReview }

const reviewed = "\n\nWhat was delivered for this was reviewed, and is in the working directory. This is to be changed:\n\n"

// Rework is the prompt of an attempt: its task and, where a review has sent it back, what is to be changed. One of the two may be empty.
func Rework(task, changes string) string {
	if task == "" || changes == "" {
		return task + changes
	}
	return task + reviewed + changes
}

// ReworkOf is the task of a prompt that [Rework] has made with changes.
func ReworkOf(prompt, changes string) string {
	if changes == "" {
		return prompt
	}
	return strings.TrimSuffix(strings.TrimSuffix(prompt, changes), reviewed)
}
