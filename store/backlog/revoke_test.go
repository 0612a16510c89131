package backlog_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// ends records the end of an attempt.
func (s scene) ends(f backlog.Fence, outcome commands.Outcome, why commands.Reason) {
	held, err := s.backlog.Record(s.Context(), []backlog.Progress{{End: &backlog.End{Fence: f, Outcome: outcome, Why: why}}})
	require.NoError(s, err)
	require.Equal(s, []bool{true}, held)
}

// stopped is an agent that stands still.
func (s scene) stopped() backlog.Fence {
	f := s.started()
	run, err := s.backlog.PauseHere(s.Context(), backlog.Pause{Task: f.Task, Paused: true, Actor: "ann"})
	require.NoError(s, err)
	_, err = s.backlog.MarkPaused(s.Context(), *run)
	require.NoError(s, err)
	return f
}

// revoke ends the connection, and tells how the one task stands then.
func (s scene) revoke(kill bool) {
	require.NoError(s, s.DB.Tx(s.Context(), "ending a connection", func(ctx context.Context, tx *store.Tx) error {
		return s.backlog.RevokeWork(ctx, tx, s.Conn.ID, kill)
	}))
}

// stood is how the one task stands, and the fence of its attempt, if it has one.
type stood struct {
	id     string
	state  commands.State
	reason commands.Reason
	fence  *backlog.Fence
}

func (s scene) stood() (st stood) {
	var attempt *int
	var epoch *int64
	require.NoError(s, owner(s, s.URL).QueryRow(s.Context(), `SELECT t.id::text, t.state, t.reason, l.attempt, l.epoch FROM standing t LEFT JOIN leases l ON l.task = t.id`).
		Scan(&st.id, &st.state, &st.reason, &attempt, &epoch))
	if attempt != nil {
		st.fence = &backlog.Fence{Task: st.id, Attempt: *attempt, Epoch: *epoch}
	}
	return st
}

// What runs when its connection ends may finish, and is not tried again, whatever its end.
func TestTheAttemptOfAnEndedConnectionIsTheLast(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct {
		outcome commands.Outcome
		why     commands.Reason
	}{
		"lost":              {commands.Interrupted, commands.ExecutorDied},
		"failed":            {commands.AttemptFailed, commands.NoReason},
		"parked by a limit": {commands.Parked, commands.Limit},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			side := newSide(t)
			s := scene{t, side, boardOf(t, side, backlog.MainWorkspace)}
			f := s.started()
			s.revoke(false)

			s.ends(f, end.outcome, end.why)

			require.Equal(t, commands.Failed, s.stood().state)
		})
	}
}

// What a connection asked for ends with it: what waits at once, whatever it waits for, and what runs by its end, or by a kill.
func TestTheEndOfAConnectionInEveryState(t *testing.T) {
	t.Parallel()
	lost := func(s scene, f backlog.Fence) { s.ends(f, commands.Interrupted, commands.ExecutorDied) }
	fresh := func(s scene) backlog.Fence { return backlog.Fence{Task: s.asked().Spawn.Task} }
	for name, tt := range map[string]struct {
		set   func(s scene) // until it stands in this state
		was   commands.State
		keeps bool // an attempt goes on, where the policy lets it
	}{
		"queued":            {func(s scene) { fresh(s) }, commands.Queued, false},
		"parked by a limit": {func(s scene) { s.ends(s.started(), commands.Parked, commands.Limit) }, commands.Queued, false},
		"lost":              {func(s scene) { lost(s, s.started()) }, commands.Queued, false},
		"paused": {func(s scene) {
			_, err := s.backlog.PauseHere(s.Context(), backlog.Pause{Task: fresh(s).Task, Paused: true, Actor: "ann"})
			require.NoError(s, err)
		}, commands.Paused, false},
		"paused, and lost": {func(s scene) { lost(s, s.stopped()) }, commands.Paused, false},
		"blocked": {func(s scene) {
			_, err := s.b.Block(s.Context(), backlog.Act{Task: fresh(s).Task, Reason: "so"})
			require.NoError(s, err)
		}, commands.Blocked, false},
		"asking, and parked": {func(s scene) {
			f := s.started()
			_, err := s.backlog.Ask(s.Context(), f, inquiry)
			require.NoError(s, err)
			s.ends(f, commands.Parked, commands.Limit)
		}, commands.AwaitingInput, false},
		"claimed":         {func(s scene) { s.running() }, commands.Claimed, false},
		"running":         {func(s scene) { s.started() }, commands.Running, true},
		"running, paused": {func(s scene) { s.stopped() }, commands.Paused, true},
		"asking":          {func(s scene) { s.asksFor() }, commands.AwaitingInput, true},
	} {
		for policy, kill := range map[string]bool{"and what runs is killed": true, "and what runs may finish": false} {
			t.Run(name+" "+policy, func(t *testing.T) {
				t.Parallel()
				side := newSide(t)
				s := scene{t, side, boardOf(t, side, backlog.MainWorkspace)}
				tt.set(s)
				require.Equal(t, tt.was, s.stood().state)

				s.revoke(kill)

				got := s.stood()
				if got.fence == nil {
					require.Equal(t, []any{commands.Cancelled, commands.LinkRevoked}, []any{got.state, got.reason})
				} else {
					runs, err := s.backlog.RevokedRuns(t.Context(), s.Conn.ID)
					require.NoError(t, err)
					require.Equal(t, kill || !tt.keeps, len(runs) == 1, "its agent is killed")
					require.Equal(t, tt.was, got.state, "until it has ended")
					lost(s, *got.fence)
				}
				require.Equal(t, tt.keeps && !kill, s.stood().state == commands.Failed)
				require.True(t, s.stood().state.Terminal())
				_, err := s.backlog.PauseHere(t.Context(), backlog.Pause{Task: got.id, Actor: "ann"})
				require.NoError(t, err)
				require.Empty(t, s.claim(), "no word of the host brings it back")
			})
		}
	}
}
