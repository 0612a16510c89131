package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// The questions that are open are reasons, each with how it is answered and what holds where nobody does; no other is one.
func TestOpenQuestionsAreReasons(t *testing.T) {
	t.Parallel()
	at := time.Now()
	q := func(state, text string) store.Question {
		return store.Question{ShortID: "k7f3m2qp", State: state, Text: text, AskedAt: at, Deadline: at.Add(time.Hour)}
	}
	choice := q(commands.QuestionOpen, "deploy?")
	choice.Options, choice.Default = []string{"yes", "not now"}, "not now"
	sent := q(commands.QuestionOpen, "when?")
	sent.Sent = &store.Sent{By: "ann"}

	list := store.OpenReasons([]store.Question{q(commands.QuestionAnswered, "was?"), choice, q(commands.QuestionWithdrawn, "no?"), sent, q(commands.QuestionOpen, "which?")})

	var said [][2]string
	for _, r := range list {
		require.Equal(t, commands.CauseQuestion, r.Code)
		require.Equal(t, []time.Time{at, at.Add(time.Hour)}, []time.Time{*r.Since, *r.Until})
		said = append(said, [2]string{r.Text, r.Fix})
	}
	require.Equal(t, [][2]string{
		{`it asks: deploy?; if nobody answers, the answer is "not now"`, `spawnmesh answer k7f3m2qp --option yes, or --option 'not now'`},
		{`it asks: when?`, `the answer of ann is sent, and not confirmed yet`},
		{`it asks: which?`, `spawnmesh answer k7f3m2qp TEXT`},
	}, said)
	require.Empty(t, store.OpenReasons(nil))
}
