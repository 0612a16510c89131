package main

import (
	"encoding/json"
	"fmt"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// receiptLine says what a spoke has signed about an agent, when that came, and whether it counts.
func receiptLine(rc store.ReceiptRow) string {
	text := fmt.Sprintf("%s seq %d  %s %s", rc.At.Local().Format("15:04:05.000"), rc.Seq, rc.Spoke, receiptWords(rc))
	switch {
	case rc.Code == string(commands.ReUnknown):
		text += "; it is about an order that this hub does not know (" + rc.Code + "): it was restored since, or the spoke made it up; it changed nothing"
	case rc.Code != "":
		text += "; this hub has refused it (" + rc.Code + "), and it changed nothing"
	case rc.Late:
		text += "; it came after the end"
	}
	return text
}

// commandWords name the commands that a spoke accepts or refuses.
var commandWords = map[string]string{
	string(commands.SpawnKind):  "the order",
	string(commands.KillKind):   "the order to end it",
	string(commands.PauseKind):  "the order to pause it or to let it go on",
	string(commands.AnswerKind): "the answer to its question",
	string(commands.ReviewKind): "the review of what it has delivered",
	string(commands.StatusKind): "to say how it stands",
}

// receiptWords are a receipt in words, without who says so. What its body has is said where the hub still has the
// message and shows it.
func receiptWords(rc store.ReceiptRow) string {
	answered := commandWords[rc.Answers]
	if answered == "" {
		answered = "a command"
	}
	switch commands.Kind(rc.Kind) {
	case commands.AcceptedKind:
		return "accepted " + answered
	case commands.RefusedKind:
		if b, ok := signedBody[commands.RefusedBody](rc); ok {
			return fmt.Sprintf("refused %s: %s (%s)", answered, b.Why, b.Code)
		}
		return "refused " + answered
	case commands.StartedKind:
		if b, ok := signedBody[commands.Started](rc); ok {
			return fmt.Sprintf("started it, attempt %d", b.Attempt)
		}
		return "started it"
	case commands.EndedKind:
		if b, ok := signedBody[commands.Ended](rc); ok {
			return fmt.Sprintf("says that attempt %d has ended (%s), and that it is %s", b.Attempt, b.Outcome, b.State)
		}
		return "says that an attempt has ended, and that it goes on"
	case commands.KilledKind:
		b, ok := signedBody[commands.Killed](rc)
		switch {
		case !ok:
			return "answers " + answered
		case b.State == commands.Cancelled:
			return "has ended it, as it was ordered to"
		}
		return fmt.Sprintf("answers %s, and says how it ended: %s", answered, b.State) // it ended by itself, as after a cancel that lets it
	case commands.StateKind:
		if b, ok := signedBody[commands.TaskState](rc); ok {
			return "says that it is " + string(b.State)
		}
		return "says how it stands"
	case commands.AskedKind:
		return "says that it asks a question"
	case commands.AnsweredKind:
		return "says what became of its question"
	case commands.ResultKind:
		if b, ok := signedBody[commands.Result](rc); ok {
			return "says how it ended: " + string(b.State)
		}
		return "says how it ended"
	}
	return "says " + rc.Kind
}

// signedBody is what a receipt says; ok is false where its message is not there.
func signedBody[T any](rc store.ReceiptRow) (v T, ok bool) {
	var message struct {
		Body []byte `json:"body"`
	}
	if json.Unmarshal(rc.Envelope, &message) != nil {
		return v, false
	}
	return v, json.Unmarshal(message.Body, &v) == nil
}
