package commands

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// No question waits longer than one may.
func TestAQuestionHasANearDeadline(t *testing.T) {
	t.Parallel()
	const id = "01920000-0000-7000-8000-000000000001"
	at := time.Now().UnixMilli()
	q := Question{Task: id, Attempt: 1, Question: id, Text: "may I?", At: at, Deadline: at + MaxQuestionFor.Milliseconds()}
	require.NoError(t, q.Validate())
	q.Deadline = lastTime
	require.Equal(t, Validation, CodeOf(q.Validate()))
	require.ErrorContains(t, q.Validate(), "the deadline of the question is")
}
