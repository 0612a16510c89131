package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// Each receipt is told in words: who signed it, what it answers and what it says, as far as the hub still has its message.
func TestAReceiptIsToldInWords(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		answers commands.Kind
		body    commands.Body
		want    string // with the message
		bare    string // without it
	}{
		"an order accepted":  {commands.SpawnKind, &commands.Accepted{State: commands.Queued}, "accepted the order", "accepted the order"},
		"a kill accepted":    {commands.KillKind, &commands.Accepted{}, "accepted the order to end it", "accepted the order to end it"},
		"what is not known":  {"", &commands.Accepted{}, "accepted a command", "accepted a command"},
		"an order refused":   {commands.SpawnKind, &commands.RefusedBody{Code: commands.Policy, Why: "not here"}, "refused the order: not here (POLICY)", "refused the order"},
		"a pause refused":    {commands.PauseKind, &commands.RefusedBody{Code: commands.Grant, Why: "no"}, "refused the order to pause it or to let it go on: no (GRANT)", "refused the order to pause it or to let it go on"},
		"an answer refused":  {commands.AnswerKind, &commands.RefusedBody{Code: commands.Conflict, Why: "late"}, "refused the answer to its question: late (CONFLICT)", "refused the answer to its question"},
		"a start":            {commands.SpawnKind, &commands.Started{Attempt: 2}, "started it, attempt 2", "started it"},
		"the end of a try":   {commands.SpawnKind, &commands.Ended{Attempt: 1, Outcome: commands.AttemptFailed, State: commands.Queued}, "says that attempt 1 has ended (failed), and that it is queued", "says that an attempt has ended, and that it goes on"},
		"a kill carried out": {commands.KillKind, &commands.Killed{State: commands.Cancelled}, "has ended it, as it was ordered to", "answers the order to end it"},
		"it ended by itself": {commands.KillKind, &commands.Killed{State: commands.Completed}, "answers the order to end it, and says how it ended: completed", "answers the order to end it"},
		"a state":            {commands.StatusKind, &commands.TaskState{State: commands.Running}, "says that it is running", "says how it stands"},
		"an end":             {commands.SpawnKind, &commands.Result{State: commands.Completed}, "says how it ended: completed", "says how it ended"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			body, err := json.Marshal(tt.body)
			require.NoError(t, err)
			message, err := json.Marshal(map[string][]byte{"body": body})
			require.NoError(t, err)
			rc := store.ReceiptRow{Spoke: "attic", Kind: string(tt.body.Kind()), Answers: string(tt.answers)}

			require.Equal(t, tt.bare, receiptWords(rc))
			rc.Envelope = message
			require.Equal(t, tt.want, receiptWords(rc))
		})
	}
	rc := store.ReceiptRow{Spoke: "attic", Kind: string(commands.StartedKind), Seq: 7, At: time.Date(2026, 3, 1, 4, 5, 6, 0, time.Local), Late: true}
	require.Equal(t, "04:05:06.000 seq 7  attic started it; it came after the end", receiptLine(rc))
	rc.Code = "RESULT_CONFLICT"
	require.Equal(t, "04:05:06.000 seq 7  attic started it; this hub has refused it (RESULT_CONFLICT), and it changed nothing", receiptLine(rc))
	rc.Code = "RE_UNKNOWN"
	require.Equal(t, "04:05:06.000 seq 7  attic started it; it is about an order that this hub does not know (RE_UNKNOWN): it was restored since, or the spoke made it up; it changed nothing", receiptLine(rc))
}
