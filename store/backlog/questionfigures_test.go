package backlog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// Of the questions of an instance's own agents those count that are open and whose agent has not ended.
func TestWhichQuestionsOfOwnAgentsCount(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		act  func(s scene, a commands.Answer, f backlog.Fence)
		left int64
	}{
		"open": {func(scene, commands.Answer, backlog.Fence) {}, 1},
		"answered": {func(s scene, a commands.Answer, _ backlog.Fence) {
			require.NoError(s, s.backlog.AnswerHere(s.Context(), a))
		}, 0},
		"ended": {func(s scene, _ commands.Answer, f backlog.Fence) { s.ends(f, commands.Succeeded, commands.NoReason) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			side := newSide(t)
			s := scene{t, side, boardOf(t, side, backlog.MainWorkspace)}
			f := s.started()
			q, err := s.backlog.Ask(t.Context(), f, inquiry)
			require.NoError(t, err)

			tt.act(s, commands.Answer{Task: f.Task, Question: q.ID, Answer: "allow", By: "uid:1"}, f)

			open, _, err := s.DB.QuestionFigures(t.Context())
			require.NoError(t, err)
			require.Equal(t, tt.left, open)
		})
	}
}
