package spoke

import (
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// liveRun is a spoke on which the second attempt of the task a is live.
func liveRun() (*Spoke, *run) {
	s := &Spoke{Log: slog.New(slog.DiscardHandler), board: &federation.Board{}}
	s.live = newLive(func() {})
	r := &run{fence: backlog.Fence{Task: "a", Attempt: 2}, estimate: 100 * time.Millisecond}
	s.live.add(r)
	return s, r
}

func pauseOfAttempt(task string, attempt int) backlog.PauseRun {
	return backlog.PauseRun{Fence: backlog.Fence{Task: task, Attempt: attempt}, Paused: true}
}

// What is said of one attempt is nothing to the next one.
func TestAWordToAnotherAttempt(t *testing.T) {
	t.Parallel()
	s, r := liveRun()
	over := func() bool {
		select {
		case <-r.overrun.over:
			return true
		default:
			return false
		}
	}
	s.live.pause(pauseOfAttempt("a", 1))
	s.tellOverrun(t.Context(), backlog.Overrun{Task: "a", Attempt: 1, Over: true})
	require.False(t, s.live.toPause(r))
	require.False(t, over())
	require.False(t, r.overrun.warned.Load())

	s.live.pause(pauseOfAttempt("a", 2))
	for range 2 { // it is said again until the attempt has ended
		s.tellOverrun(t.Context(), backlog.Overrun{Task: "a", Attempt: 2, Over: true})
	}

	require.True(t, s.live.toPause(r))
	require.True(t, over())
	require.True(t, r.overrun.warned.Load())
}

// One heartbeat tells the progress of 100 agents, and has the others without it.
func TestABeatTellsTheProgressOfSome(t *testing.T) {
	t.Parallel()
	for agents, want := range map[int]int{commands.MaxBeatProgress: 100, commands.MaxBeatProgress + 1: 100} {
		s, _ := liveRun()
		for i := range agents {
			s.live.add(&run{asker: "lab", fence: backlog.Fence{Task: strconv.Itoa(i), Attempt: 1}, said: &backlog.Step{Progress: commands.Progress{Step: "x"}}})
		}

		list := s.live.beats("lab")

		require.Len(t, list, agents)
		told := 0
		for _, b := range list {
			if b.Progress != nil {
				told++
			}
		}
		require.Equal(t, want, told)
	}
}

// A pause waits a minute for its attempt, and is then forgotten.
func TestAPauseWaitsForItsAttempt(t *testing.T) {
	t.Parallel()
	s, _ := liveRun()
	for _, task := range []string{"claimed", "late", "never"} {
		s.live.pause(pauseOfAttempt(task, 1))
	}
	aged := func(task string, by time.Duration) {
		m := s.live.missed[task]
		m.at = m.at.Add(-by)
		s.live.missed[task] = m
	}
	aged("late", missedFor-10*time.Second)
	aged("never", missedFor+time.Second)

	s.live.followPauses(nil, nil)

	require.Len(t, s.live.missed, 2)
	for task, paused := range map[string]bool{"claimed": true, "late": true, "never": false} {
		r := &run{fence: backlog.Fence{Task: task, Attempt: 1}}
		s.live.add(r)
		require.Equal(t, paused, s.live.toPause(r), task)
	}
	require.Empty(t, s.live.missed)
}

// What was read before a pause or a resume was said does not undo it.
func TestAnOlderReadUndoesNoWord(t *testing.T) {
	t.Parallel()
	for _, paused := range []bool{true, false} {
		s, r := liveRun()
		was := pauseOfAttempt("a", 2)
		was.Paused = !paused
		s.live.pause(was)
		words := s.live.words()
		now := was
		now.Paused = paused
		s.live.pause(now)

		s.live.followPauses(words, []backlog.PauseRun{was})
		require.Equal(t, paused, s.live.toPause(r), "what is older")

		s.live.followPauses(s.live.words(), []backlog.PauseRun{was})
		require.Equal(t, !paused, s.live.toPause(r), "what is newer")
	}
}

// After a restore the next attempt of a task may be here before the end of the one before it is recorded: that one is told, and left, too.
func TestAnEarlierAttemptIsNotForgotten(t *testing.T) {
	t.Parallel()
	s, later := liveRun()
	earlier := &run{fence: backlog.Fence{Task: "a", Attempt: 1}}
	s.live.add(earlier)
	require.True(t, s.live.await(earlier, make(chan backlog.Past, 1)))
	again := &run{fence: later.fence}
	s.live.add(again)
	require.False(t, s.live.await(again, make(chan backlog.Past, 1)), "one looks for all")
	require.Len(t, s.live.awaiting(), 2)
	require.Zero(t, s.live.count())
	require.False(t, s.live.onlyAwaits(), "an attempt that is not in its slot any more is ended yet")
	s.live.await(later, make(chan backlog.Past, 1))
	over := &run{fence: backlog.Fence{Task: "b", Attempt: 1}}
	s.live.add(over)
	s.live.remove(over)
	require.True(t, s.live.onlyAwaits(), "no stop waits for them")

	s.live.abandon()

	for _, r := range []*run{later, earlier, again} {
		select {
		case <-r.leave:
		default:
			require.Fail(t, "it is not left", "attempt %d", r.fence.Attempt)
		}
	}
	for _, r := range []*run{earlier, again, later} {
		s.live.awaitsNoMore(r)
	}
	require.Empty(t, s.live.awaiting())
	require.True(t, s.live.await(earlier, make(chan backlog.Past, 1)), "nobody looked any more")
}
