package backlog_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// whyOf returns what the audit of a task says about one action.
func whyOf(t *testing.T, b *backlog.Workspace, task, action string) (why []string) {
	t.Helper()
	rows, err := b.Audit(t.Context(), task, 0, 100)
	require.NoError(t, err)
	for _, r := range rows {
		if r.Action == action {
			why = append(why, r.Why)
		}
	}
	return why
}

func TestAReasonIsRecorded(t *testing.T) {
	t.Parallel()
	b := board(t)
	for done, act := range map[string]func(backlog.Act) (backlog.Task, error){
		"failed":   func(a backlog.Act) (backlog.Task, error) { return b.Fail(t.Context(), a) },
		"blocked":  func(a backlog.Act) (backlog.Task, error) { return b.Block(t.Context(), a) },
		"released": func(a backlog.Act) (backlog.Task, error) { return b.Release(t.Context(), a) },
	} {
		t.Run(done, func(t *testing.T) {
			for _, who := range []string{"worker", "operator"} {
				key := who + "-" + done
				create(t, b, backlog.TaskSpec{Key: key, Title: key})
				c := claimCards(t, b, func(c *backlog.ClaimTerms) { c.Task = key })
				a := backlog.Act{Task: key, Reason: "the disk is full"}
				if who == "worker" {
					a.Fence = &c[0].Fence
				}

				_, err := act(a)

				require.NoError(t, err)
				require.Equal(t, []string{"the disk is full"}, whyOf(t, b, key, who+"."+done))
			}
		})
	}
}

func TestTheAuditOfAWorkspace(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b, other := boardOf(t, s, backlog.MainWorkspace), boardOf(t, s, "red")
	create(t, b, backlog.TaskSpec{Key: "A1", Title: "x"}, backlog.TaskSpec{Key: "A2", Title: "x"})
	create(t, b, backlog.TaskSpec{Key: "A3", Title: "x"})
	create(t, other, backlog.TaskSpec{Key: "R1", Title: "x"})
	require.NoError(t, s.DB.Audit(t.Context(), store.AuditRow{Actor: "ann", Action: "connection.active", Object: "attic"}))
	claimCards(t, b, nil)
	_, err := b.Complete(t.Context(), backlog.Act{Task: "A1"})
	require.NoError(t, err)

	one, err := b.Audit(t.Context(), "A1", 0, 100)
	require.NoError(t, err)
	all, err := b.Audit(t.Context(), "", 0, 100)
	require.NoError(t, err)
	newest, err := b.Audit(t.Context(), "", 0, 1)
	require.NoError(t, err)
	_, unknown := b.Audit(t.Context(), "R1", 0, 100)

	var actions []string
	for _, r := range one {
		actions = append(actions, r.Action)
	}
	require.Equal(t, []string{"task.queued", "task.claimed"}, actions[:2], "an act on many at once is about each")
	require.Contains(t, actions, "operator.completed")
	require.Greater(t, len(all), len(one))
	require.Equal(t, all[len(all)-1:], newest)
	for _, r := range all {
		require.NotEqual(t, "connection.active", r.Action, "it is not of this workspace")
	}
	require.Equal(t, commands.NotFound, commands.CodeOf(unknown))
}

func TestOnlySuccessIsDone(t *testing.T) {
	t.Parallel()
	b := board(t)
	create(t, b, backlog.TaskSpec{Key: "good", Title: "x"}, backlog.TaskSpec{Key: "bad", Title: "x"}, backlog.TaskSpec{Key: "unwanted", Title: "x"})
	claimCards(t, b, nil)
	_, err := b.Complete(t.Context(), backlog.Act{Task: "good"})
	require.NoError(t, err)
	_, err = b.Fail(t.Context(), backlog.Act{Task: "bad"})
	require.NoError(t, err)
	_, err = b.Cancel(t.Context(), backlog.Act{Task: "unwanted"})
	require.NoError(t, err)

	s, err := b.Stats(t.Context())

	require.NoError(t, err)
	require.EqualValues(t, 1, s.Status[backlog.BoardDone])
	require.EqualValues(t, 2, s.Unsuccessful)
	require.Equal(t, map[commands.State]int64{commands.Completed: 1, commands.Failed: 1, commands.Cancelled: 1}, s.States)
}

func TestReclaimTakesBackAll(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	specs := slices.Repeat([]backlog.TaskSpec{{Title: "x"}}, 1003)
	create(t, b, specs...)
	claimCards(t, b, func(c *backlog.ClaimTerms) { c.Limit = 1000 })
	claimCards(t, b, nil)
	lab := boardOf(t, s, "lab")
	create(t, lab, specs[0])
	claimCards(t, lab, nil)
	require.NoError(t, s.Exec(`UPDATE leases SET (until, sweep_at) = (now() - interval '1 second', '-infinity')`))

	back, err := b.Reclaim(t.Context(), "")

	require.NoError(t, err)
	require.Len(t, back, len(specs))
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM leases WHERE workspace = 'lab'`), "what is of another workspace stays as it is")
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM leases`))
}
