package backlog_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/scale"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// How a task comes to stand as it does, by words that begin with its state. What an attempt holds and what none does are told apart.
var standings = map[string][]step{
	"queued":                         {card},
	"queued agent":                   {agent(1)},
	"queued without its inputs":      {agentWithInput},
	"paused without its inputs":      {agentWithInput, pauseHere},
	"expired without its inputs":     {agentWithInput, late},
	"unavailable without its inputs": {agentWithInput, inputLost},
	"queued after a failure":         {agent(1), claim, start, end(commands.AttemptFailed)},
	"claimed":                        {card, claim},
	"claimed agent":                  {agent(1), claim},
	"running agent":                  {agent(1), claim, start},
	"running agent, which is killed": {agent(1), claim, start, killHere},
	"awaiting_input agent":           {agent(1), claim, start, asking},
	"awaiting_input without attempt": {agent(1), claim, start, asking, end(commands.Interrupted)},
	"paused":                         {card, pause},
	"paused agent":                   {agent(1), claim, start, standStill(true)},
	"paused without attempt":         {agent(1), pauseHere},
	"blocked":                        {card, block},
	"blocked agent":                  {agent(1), block},
	"completed":                      {card, claim, done},
	"completed agent":                {agent(1), claim, start, end(commands.Succeeded)},
	"failed":                         {card, claim, fail},
	"failed agent":                   {agent(0), claim, start, end(commands.AttemptFailed)},
	"cancelled":                      {card, cancel},
	"cancelled agent":                {agent(1), claim, start, end(commands.AttemptKilled)},
	"expired agent":                  {agent(1), late},
	"unavailable agent":              {agent(1), claim, end(commands.CouldNotStart)},
}

// started are those in which an attempt has an agent.
var started = []string{"running agent", "running agent, which is killed", "awaiting_input agent", "paused agent"}

// An attempted act is tried on tasks in every standing, with the last fence that the task had. What it answers is not looked at.
type attempted struct {
	by  []commands.Trigger // the triggers that it has
	act step
}

func (a attempted) may(from, to commands.State) bool {
	return slices.ContainsFunc(a.by, func(by commands.Trigger) bool { return commands.May(from, to, by) })
}

var attempts = map[string]attempted{
	"claim":            {[]commands.Trigger{commands.ByClaim}, tryClaim},
	"start":            {[]commands.Trigger{commands.ByStart}, tryStart},
	"lose":             {[]commands.Trigger{commands.ByLoss, commands.ByFailure}, lose},
	"expire":           {[]commands.Trigger{commands.ByExpiry}, late},
	"ask":              {[]commands.Trigger{commands.ByQuestion}, asking},
	"answer":           {[]commands.Trigger{commands.ByAnswer}, answer},
	"stand still":      {[]commands.Trigger{commands.ByPause}, tryPause(true)},
	"go on":            {[]commands.Trigger{commands.ByResume}, tryPause(false)},
	"kill":             {[]commands.Trigger{commands.ByCancel, commands.ByCancelled}, killHere},
	"done by fence":    {[]commands.Trigger{commands.ByDone}, done},
	"complete":         {[]commands.Trigger{commands.ByOperator}, accept},
	"fail":             {[]commands.Trigger{commands.ByFailure}, fail},
	"block":            {[]commands.Trigger{commands.ByBlock}, block},
	"unblock":          {[]commands.Trigger{commands.ByUnblock}, by((*backlog.Workspace).Unblock)},
	"pause":            {[]commands.Trigger{commands.ByPause}, pause},
	"resume":           {[]commands.Trigger{commands.ByResume}, by((*backlog.Workspace).Resume)},
	"release":          {[]commands.Trigger{commands.ByRelease}, by((*backlog.Workspace).Release)},
	"input comes":      {nil, inputCame},
	"input is lost":    {[]commands.Trigger{commands.ByUnavailable}, inputLost},
	"cancel":           {[]commands.Trigger{commands.ByCancel, commands.ByCancelled}, cancel},
	"retry":            {[]commands.Trigger{commands.ByRetry}, retry},
	"end: succeeded":   {[]commands.Trigger{commands.ByDone}, tryEnd(commands.Succeeded)},
	"end: failed":      {[]commands.Trigger{commands.ByLoss, commands.ByFailure}, tryEnd(commands.AttemptFailed)},
	"end: interrupted": {[]commands.Trigger{commands.ByLoss, commands.ByFailure}, tryEnd(commands.Interrupted)},
	"end: parked":      {[]commands.Trigger{commands.ByRelease}, tryEnd(commands.Parked)},
	"end: released":    {[]commands.Trigger{commands.ByRelease}, tryEnd(commands.Released)},
	"end: timed out":   {[]commands.Trigger{commands.ByExpiry}, tryEnd(commands.TimedOut)},
	"end: not started": {[]commands.Trigger{commands.ByNoStart}, tryEnd(commands.CouldNotStart)},
	"end: killed":      {[]commands.Trigger{commands.ByCancelled}, tryEnd(commands.AttemptKilled)},
}

// Whatever is tried on a task that stands as it may, it moves as the table says, or not at all. The trigger of the database, which
// TestTheDatabaseRefusesOtherMoves is about, is switched off: the program's own conditions are enough.
func TestEveryOtherMoveIsRefused(t *testing.T) {
	t.Parallel()
	var names [][2]string
	for standing := range maps.Keys(standings) {
		for act := range maps.Keys(attempts) {
			if act != "end: not started" || !slices.Contains(started, standing) { // of what has started no supervisor says that, and nothing else keeps it from being unavailable (decision 37)
				names = append(names, [2]string{standing, act})
			}
		}
	}
	slices.SortFunc(names, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	for _, name := range scale.Some(t, 40, names) {
		t.Run(name[0]+": "+name[1], func(t *testing.T) {
			t.Parallel()
			side := newSide(t)
			w := &walker{scene: scene{t, side, boardOf(t, side, backlog.MainWorkspace)}}
			for _, s := range standings[name[0]] {
				require.NoError(t, s(w))
			}
			before := w.stands()
			_, err := owner(w, w.URL).Exec(w.Context(), `ALTER TABLE tasks DISABLE TRIGGER tasks_moved`)
			require.NoError(t, err)
			// An agent that waits or stands still ends as one that runs: what it does was on its way (decision 37).
			held := slices.Contains(started, name[0]) && strings.HasPrefix(name[1], "end: ")
			require.Regexp(t, "^"+string(before), name[0])

			_ = attempts[name[1]].act(w) // an error is as good as no effect

			after, tried := w.stands(), attempts[name[1]]
			require.True(t, after == before || tried.may(before, after) || held && tried.may(commands.Running, after), "%s moved the task to %s", name[1], after)
		})
	}
}

func tryClaim(w *walker) error {
	_, err := w.backlog.Claim(w.Context(), backlog.ClaimTerms{Owner: string(w.Self()), Limit: 1})
	if err == nil {
		_, err = w.b.Claim(w.Context(), backlog.ClaimTerms{Owner: "worker", Limit: 1})
	}
	return err
}

func tryStart(w *walker) error {
	_, err := w.backlog.Record(w.Context(), []backlog.Progress{{Start: &backlog.Start{Fence: w.fence, Pid: 1, BootID: "b"}}})
	return err
}

func tryEnd(o commands.Outcome) step {
	return func(w *walker) error {
		_, err := w.backlog.Record(w.Context(), []backlog.Progress{{End: &backlog.End{Fence: w.fence, Outcome: o}}})
		return err
	}
}

func tryPause(on bool) step {
	return func(w *walker) error {
		_, err := w.backlog.MarkPaused(w.Context(), backlog.PauseRun{Fence: w.fence, Paused: on})
		return err
	}
}

func killHere(w *walker) error {
	_, err := w.backlog.KillHere(w.Context(), backlog.HostKill{Kill: commands.Kill{Task: w.task, Reason: "enough"}, ID: "01a1fe92-0829-7df7-af08-f4f57a30c0e9", Actor: "ann"})
	return err
}
