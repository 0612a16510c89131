package backlog_test

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// An act that a worker or the operator may do.
type refVerb struct {
	act     func(*backlog.Workspace, context.Context, backlog.Act) (backlog.Task, error)
	outcome string
	to      commands.State
	from    []commands.State // where the operator's word is taken
	fenced  bool             // a worker may say it, too
}

var verbs = map[string]refVerb{
	"complete": {(*backlog.Workspace).Complete, "succeeded", commands.Completed, []commands.State{commands.Queued, commands.Claimed, commands.Blocked}, true},
	"fail":     {(*backlog.Workspace).Fail, "failed", commands.Failed, []commands.State{commands.Queued, commands.Claimed, commands.Blocked}, true},
	"release":  {(*backlog.Workspace).Release, "released", commands.Queued, []commands.State{commands.Claimed}, true},
	"block":    {(*backlog.Workspace).Block, "blocked", commands.Blocked, []commands.State{commands.Queued, commands.Claimed}, true},
	"cancel":   {(*backlog.Workspace).Cancel, "cancelled", commands.Cancelled, []commands.State{commands.Queued, commands.Claimed, commands.Blocked}, false},
}

func (m *machine) delay(rt *rapid.T, v refVerb) time.Duration {
	if v.to != commands.Queued {
		return 0
	}
	return rapid.SampledFrom([]time.Duration{0, farAhead}).Draw(rt, "delay")
}

// byFence is a worker's act; a fence that does not hold changes nothing, and one
// that ended its attempt by the same word gets the same answer.
func (m *machine) byFence(rt *rapid.T, v refVerb) {
	f := m.fence(rt)
	delay := m.delay(rt, v)
	if rapid.IntRange(0, 9).Draw(rt, "from elsewhere") == 9 {
		_, err := v.act(m.foreign, context.Background(), backlog.Act{Fence: &f, Delay: delay})
		expect(rt, commands.NotFound, err)
		return
	}
	t := m.ref.byID(f.Task)
	want, holds := commands.StaleAttempt, false
	switch {
	case t == nil:
		want = commands.NotFound
	case t.held() && t.fence() == f:
		want, holds = "", true
	case f.Attempt <= len(t.attempts) && t.attempts[f.Attempt-1].epoch == f.Epoch && t.attempts[f.Attempt-1].outcome == v.outcome:
		want = ""
	}
	got, err := v.act(m.client(rt), context.Background(), backlog.Act{Fence: &f, Delay: delay})
	expect(rt, want, err)
	if holds {
		m.ref.end(t, v.outcome, false, delay > 0)
		m.postpone(rt, t, got)
	}
	if want == "" {
		require.Equal(rt, t.state, got.State)
	}
}

// postpone checks the back-off of a failed attempt, which is drawn at random, and
// makes it long, so that it cannot end by itself in the middle of the test.
func (m *machine) postpone(rt *rapid.T, t *refTask, got backlog.Task) {
	if t.state != commands.Queued || t.attempts[len(t.attempts)-1].outcome != "failed" {
		return
	}
	require.NotNil(rt, got.NotBefore)
	require.LessOrEqual(rt, time.Until(*got.NotBefore), 30*time.Second<<t.retries)
	for _, sql := range []string{`UPDATE tasks SET not_before = now() + interval '1 hour' WHERE id = $1`,
		`UPDATE due SET at = (SELECT not_before FROM tasks WHERE id = task) WHERE task = $1`} {
		require.NoError(rt, m.Exec(sql, t.id))
	}
}

// byHand is the operator's act.
func (m *machine) byHand(rt *rapid.T) {
	t := m.task(rt, "the task")
	v := verbs[rapid.SampledFrom(slices.Sorted(maps.Keys(verbs))).Draw(rt, "what")]
	delay := m.delay(rt, v)
	var want commands.Code
	same := t.state == v.to && v.to != commands.Queued
	if !same && !slices.Contains(v.from, t.state) {
		want = commands.Conflict
	}
	got, err := v.act(m.client(rt), context.Background(), backlog.Act{Task: t.called(rt), Reason: "so", Delay: delay})
	expect(rt, want, err)
	switch {
	case want != "" || same:
	case t.held():
		m.ref.endByHand(t, v.outcome, delay > 0)
	default:
		m.ref.move(t, v.to)
	}
	if want == "" {
		require.Equal(rt, t.state, got.State)
	}
}

func (m *machine) unblock(rt *rapid.T) {
	t := m.task(rt, "the task")
	var want commands.Code
	if t.state != commands.Blocked {
		want = commands.Conflict
	}
	_, err := m.client(rt).Unblock(context.Background(), backlog.Act{Task: t.called(rt)})
	expect(rt, want, err)
	if want == "" {
		m.ref.move(t, commands.Queued)
	}
}

func (m *machine) retry(rt *rapid.T) {
	t := m.task(rt, "the task")
	delay := rapid.SampledFrom([]time.Duration{0, farAhead}).Draw(rt, "delay")
	var want commands.Code
	if t.state != commands.Failed && t.state != commands.Cancelled || t.replays == 10 || t.policy() == "cancel" && t.inVain() {
		want = commands.Conflict
	}
	_, err := m.client(rt).Retry(context.Background(), backlog.Act{Task: t.called(rt), Delay: delay})
	expect(rt, want, err)
	if want == "" {
		m.ref.move(t, commands.Queued)
		t.replays, t.nextType, t.later = t.replays+1, "replay", delay > 0
	}
}

// reclaim takes one task back, whether its lease has run out or not.
func (m *machine) reclaim(rt *rapid.T) {
	t := m.task(rt, "the task")
	var want commands.Code
	if !t.held() && t.state != commands.Blocked {
		want = commands.Conflict
	}
	_, err := m.client(rt).Reclaim(context.Background(), t.called(rt))
	expect(rt, want, err)
	switch {
	case want != "":
	case t.held():
		m.ref.endByHand(t, "released", false)
	default:
		m.ref.move(t, commands.Queued)
	}
}
