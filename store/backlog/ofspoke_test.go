package backlog_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// Who knows the task of an agent can guess its fence, and moves nothing with it.
func TestAGuessedFenceDoesNotEndAnAgent(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	task := scene{t, s, b}.asked().Spawn.Task
	_, err := b.Claim(t.Context(), backlog.ClaimTerms{Owner: "guesser", Task: task})
	require.Equal(t, commands.Conflict, commands.CodeOf(err), "%v", err)
	_, err = s.backlog.Claim(t.Context(), backlog.ClaimTerms{Owner: string(s.DB.Self()), Limit: 1})
	require.NoError(t, err)
	guess := backlog.Fence{Task: task, Attempt: 1, Epoch: 1}
	before := *show(t, b, task).LeaseUntil

	act := backlog.Act{Fence: &guess, Result: []byte(`{"ok":true}`)}
	for name, do := range map[string]func() error{
		"complete": func() error { return second(b.Complete(t.Context(), act)) },
		"fail":     func() error { return second(b.Fail(t.Context(), act)) },
		"release":  func() error { return second(b.Release(t.Context(), act)) },
		"block":    func() error { return second(b.Block(t.Context(), act)) },
		"renew":    func() error { return second(b.Renew(t.Context(), guess, time.Hour)) },
	} {
		err := do()
		require.Equal(t, commands.Conflict, commands.CodeOf(err), "%s: %v", name, err)
		require.ErrorContains(t, err, "is an agent that this instance's spoke runs", name)
	}

	after := show(t, b, task)
	require.Equal(t, commands.Claimed, after.State)
	require.Equal(t, before, *after.LeaseUntil)
	held, err := s.backlog.Renew(t.Context(), []backlog.Fence{guess}, time.Hour)
	require.NoError(t, err)
	require.True(t, held[guess], "the spoke goes on")
}

// An agent is paused by numbered words alone: what a workspace says would be neither newer nor older than those.
func TestAnAgentIsNotPausedAsACard(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	here := scene{t, s, b}
	r := here.asked()
	act := backlog.Act{Task: r.Spawn.Task, Reason: "so"}
	for _, on := range []bool{false, true} {
		word, do := "pause", b.Pause
		if on {
			_, _, err := here.pause(pauseOf(r, 1, true))
			require.NoError(t, err)
			word, do = "resume", b.Resume
		}
		before := show(t, b, r.Spawn.Task).State

		_, err := do(t.Context(), act)

		refused, ok := errors.AsType[*commands.Refused](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, commands.Conflict, refused.Code)
		require.Equal(t, []string{word, commands.ShortID(r.Spawn.Task)}, refused.Run)
		require.Equal(t, before, show(t, b, r.Spawn.Task).State)
	}
}

// Whom a workspace binds does not see the agents of hubs in it, nor stop them.
func TestABoundWorkspaceHasNoAgents(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	bound := b.Bound()
	create(t, b, backlog.TaskSpec{Key: "old", Title: "t"})
	here := scene{t, s, b}
	task := here.asked().Spawn.Task
	for range 3 {
		require.Nil(t, here.asks(here.request())[0].Refusal)
	}
	create(t, b, backlog.TaskSpec{Key: "new", Title: "t"})

	for name, f := range map[string]backlog.Filter{"newest": {Limit: 2}, "ready": {Limit: 2, ReadyOnly: true}, "of a lane": {Lane: backlog.DefaultLane, Limit: 2}} {
		list, err := bound.List(t.Context(), f)
		require.NoError(t, err)
		require.Len(t, list, 2, name)
		require.ElementsMatch(t, []string{"old", "new"}, []string{list[0].Key, list[1].Key}, name)
	}
	for name, err := range map[string]error{
		"show":   second(bound.Show(t.Context(), task)),
		"why":    second(bound.Why(t.Context(), task)),
		"cancel": second(bound.Cancel(t.Context(), backlog.Act{Task: task})),
		"block":  second(bound.Block(t.Context(), backlog.Act{Task: task})),
		"fence":  second(bound.Complete(t.Context(), backlog.Act{Fence: &backlog.Fence{Task: task, Attempt: 1, Epoch: 1}})),
		"claim":  second(bound.Claim(t.Context(), backlog.ClaimTerms{Owner: "w", Task: task})),
		"link":   bound.Link(t.Context(), "new", task),
	} {
		require.Equal(t, commands.NotFound, commands.CodeOf(err), "%s: %v", name, err)
	}
	known, err := bound.ShowAll(t.Context(), []string{task})
	require.NoError(t, err)
	require.Empty(t, known)
	require.Equal(t, commands.Queued, show(t, b, task).State)

	none := 0
	for name, err := range map[string]error{
		"freeze":   failed(bound.Freeze(t.Context(), backlog.Freeze{Scope: "workspace", Reason: "x"})),
		"unfreeze": bound.Unfreeze(t.Context(), "workspace", "", "x"),
		"account":  failed(bound.Freeze(t.Context(), backlog.Freeze{Scope: "account", Target: "acme", Reason: "x"})),
		"thaw":     bound.Unfreeze(t.Context(), "account", "acme", "x"),
		"room":     bound.SetQuota(t.Context(), backlog.Quota{Name: "q", Scope: "account", Target: "acme", Concurrent: &none}),
		"spend":    bound.SetBudget(t.Context(), backlog.Budget{Name: "b", Scope: "account", Target: "acme", Dimension: "usd", Hard: backlog.Unit}),
		"lane":     bound.SetLane(t.Context(), backlog.Lane{Name: backlog.DefaultLane, State: "paused", Reason: "x"}),
		"quota":    bound.SetQuota(t.Context(), backlog.Quota{Name: "q", Scope: "workspace", Concurrent: &none}),
		"budget":   bound.SetBudget(t.Context(), backlog.Budget{Name: "b", Scope: "lane", Target: backlog.DefaultLane, Dimension: "spawns", Hard: backlog.Unit}),
	} {
		require.Equal(t, commands.Forbidden, commands.CodeOf(err), "%s: %v", name, err)
	}
	require.NoError(t, bound.SetLane(t.Context(), backlog.Lane{Name: "mine", State: "paused", Reason: "x"}))
	require.NoError(t, failed(boardOf(t, s, "lab").Bound().Freeze(t.Context(), backlog.Freeze{Scope: "account", Target: "acme", Reason: "x"})), "agents are in the main workspace")
	require.NoError(t, failed(boardOf(t, s, "lab").Bound().Freeze(t.Context(), backlog.Freeze{Scope: "workspace", Reason: "x"})), "agents are in the main workspace")
	_, err = bound.RotateGrantKey(t.Context())
	require.Equal(t, commands.Forbidden, commands.CodeOf(err), "%v", err)
}

// The audit names who asked for a claim, whoever the claim is for.
func TestTheAuditNamesWhoClaims(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	create(t, b, backlog.TaskSpec{Key: "a", Title: "t"}, backlog.TaskSpec{Key: "b", Title: "t"})
	claimCards(t, b, func(c *backlog.ClaimTerms) { c.Task, c.Owner = "a", "somebody" })
	claimCards(t, b, func(c *backlog.ClaimTerms) { c.Task, c.Owner = "b", "ann" })
	for task, why := range map[string]string{"a": "attempt 1, for somebody", "b": "attempt 1"} {
		rows, err := b.Audit(t.Context(), task, 0, 100)
		require.NoError(t, err)
		last := rows[len(rows)-1]
		require.Equal(t, []string{"task.claimed", "ann", why, show(t, b, task).ID}, []string{last.Action, last.Actor, last.Why, last.Object})
	}
	require.Equal(t, "somebody", show(t, b, "a").Owner)
}

// A fence goes with every name of its task.
func TestAFenceGoesWithTheShortIDOfItsTask(t *testing.T) {
	t.Parallel()
	b := board(t)
	create(t, b, backlog.TaskSpec{Key: "a", Title: "t"}, backlog.TaskSpec{Key: "b", Title: "t"})
	fence := claimCards(t, b, func(c *backlog.ClaimTerms) { c.Task = "a" })[0].Fence
	_, err := b.Complete(t.Context(), backlog.Act{Task: show(t, b, "b").ShortID, Fence: &fence})
	require.Equal(t, commands.Validation, commands.CodeOf(err), "%v", err)
	_, err = b.Complete(t.Context(), backlog.Act{Task: show(t, b, "a").ShortID, Fence: &fence})
	require.NoError(t, err)
}
