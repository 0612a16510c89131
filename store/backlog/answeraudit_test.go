package backlog_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// The audit says which question was closed, with what, and by whom at the hub: it stays when the task is gone.
func TestTheAuditSaysWhatWasAnswered(t *testing.T) {
	t.Parallel()
	long, free := strings.Repeat("x", 70), backlog.Inquiry{Key: "k", What: commands.Question{Text: "who?"}, For: inquiry.For}
	inTime := func(s scene, _ backlog.Fence, _ backlog.Question) {
		require.NoError(s, s.Exec(`UPDATE questions SET deadline = clock_timestamp() - interval '1 s'`))
		require.NoError(s, s.Exec(`UPDATE due SET at = now()`))
		_, err := s.backlog.Sweep(s.Context(), 0)
		require.NoError(s, err)
	}
	for name, tt := range map[string]struct {
		asked backlog.Inquiry
		act   func(s scene, f backlog.Fence, q backlog.Question)
		row   [3]string // actor, action, why without the question
	}{
		"by the host": {inquiry, func(s scene, f backlog.Fence, q backlog.Question) {
			require.NoError(s, s.backlog.AnswerHere(s.Context(), commands.Answer{Task: f.Task, Question: q.ID, Answer: "deny", By: "uid:1", Reason: "too dear"}))
		}, [3]string{"uid:1", "task.answered", `; "deny"; too dear`}},
		"by the hub": {inquiry, func(s scene, f backlog.Fence, q backlog.Question) {
			_, err := within(s.Context(), s.side, func(ctx context.Context, tx *store.Tx) (any, error) {
				return s.backlog.Answer(ctx, tx, backlog.Answerer{Actor: "mi1hub", Conn: s.Conn.ID}, commands.Answer{Task: f.Task, Question: q.ID, Answer: "allow", By: "token:ann", Reason: "so"})
			})
			require.NoError(s, err)
		}, [3]string{"mi1hub", "task.answered", `; "allow"; HUB: token:ann; so`}},
		"at length": {free, func(s scene, f backlog.Fence, q backlog.Question) {
			require.NoError(s, s.backlog.AnswerHere(s.Context(), commands.Answer{Task: f.Task, Question: q.ID, Answer: long, By: "uid:1"}))
		}, [3]string{"uid:1", "task.answered", `; "` + commands.Clip(long) + `"`}},
		"by its default": {backlog.Inquiry{Key: "k", What: commands.Question{Text: "who?", Default: "ann"}, For: inquiry.For}, inTime, [3]string{"self", "task.defaulted", `; "ann"`}},
		"by nobody":      {free, inTime, [3]string{"self", "task.unanswered", ""}},
		"withdrawn": {inquiry, func(s scene, f backlog.Fence, q backlog.Question) {
			_, err := s.backlog.Withdraw(s.Context(), f, q.ID)
			require.NoError(s, err)
		}, [3]string{"self", "task.withdrawn", "; its agent needs no answer any more"}},
		"with its attempt": {inquiry, func(s scene, f backlog.Fence, _ backlog.Question) {
			s.ends(f, commands.AttemptFailed, commands.NoReason)
		}, [3]string{"self", "task.withdrawn", "; the attempt that asked it has ended, and the next one has not asked it"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			side := newSide(t)
			s := scene{t, side, boardOf(t, side, backlog.MainWorkspace)}
			f := s.started()
			q, err := s.backlog.Ask(t.Context(), f, tt.asked)
			require.NoError(t, err)

			tt.act(s, f, q)

			why := q.ShortID + strings.Replace(tt.row[2], "HUB", s.Conn.Name, 1)
			require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM audit WHERE object = $1 AND actor = $2 AND action = $3 AND why = $4`, f.Task, tt.row[0], tt.row[1], why), "%s", why)
		})
	}
}
