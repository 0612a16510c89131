package hub_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// linked is a spoke of four slots that is heard.
func linked(change func(*hub.SpokeView)) hub.SpokeView {
	now := time.Now()
	c := hub.SpokeView{Standing: federation.Standing{Connection: store.Connection{Name: "attic", State: store.Active, Since: now}, Linked: true, LastSeen: &now,
		Says: commands.ConnectionView{State: commands.ConnActive}}, Liveness: hub.Alive, Slots: 4}
	if change != nil {
		change(&c)
	}
	return c
}

// why is what is said of an agent. Who may not see what others wrote is told the same, but for their words.
func why(t *testing.T, v hub.AgentView, at hub.SpokeView) []commands.WhyReason {
	t.Helper()
	list := hub.Why(v, at)
	require.Equal(t, wordless(list), wordless(hub.Why(v.Brief(), at)))
	return list
}

func wordless(list []commands.WhyReason) (less []commands.WhyReason) {
	for _, r := range list {
		r.Text = ""
		less = append(less, r)
	}
	return less
}

// Every state has a reason, and a state that is added has a row here.
func TestEveryStateHasAReason(t *testing.T) {
	t.Parallel()
	want := map[commands.State]commands.Cause{
		commands.Queued: commands.CauseOrder, commands.Claimed: commands.CauseState, commands.Running: commands.CauseState, commands.AwaitingInput: commands.CauseQuestion,
		commands.Paused: commands.CauseState, commands.Blocked: commands.CauseState, commands.InReview: commands.CauseReview, commands.Approved: commands.CauseReview,
		commands.Completed: commands.CauseEnded, commands.Failed: commands.CauseEnded, commands.Cancelled: commands.CauseEnded, commands.Expired: commands.CauseEnded, commands.Unavailable: commands.CauseEnded,
	}
	for _, state := range commands.States {
		require.Contains(t, want, state)

		list := why(t, hub.AgentView{Mirror: store.Mirror{Task: "7", Spoke: "attic", State: state}}, linked(nil))

		require.NotEmpty(t, list, state)
		require.Equal(t, want[state], list[0].Code, state)
		require.NotEmpty(t, list[0].Text, state)
		require.Equal(t, state.Terminal() && state != commands.Completed || want[state] == commands.CauseReview, list[0].Fix != "", state)
	}
}

// What keeps an agent is told by its code, with its figure and what would change it; nothing that is
// old is told as if it were of now.
func TestWhatAHubKnowsOfAnAgentThatWaits(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ordered := func(change func(*hub.AgentView)) hub.AgentView {
		v := hub.AgentView{Mirror: store.Mirror{Task: "7", Spoke: "attic", State: commands.Queued, CreatedAt: now}}
		if change != nil {
			change(&v)
		}
		return v
	}
	accepted := func(change func(*hub.AgentView)) hub.AgentView {
		v := ordered(change)
		v.AcceptedAt = &now
		return v
	}
	busy := func(c *hub.SpokeView) { c.Running = 4 }
	tests := map[string]struct {
		agent hub.AgentView
		at    hub.SpokeView
		codes []commands.Cause
		fix   string // of the first, a part
	}{
		"on its way":             {ordered(nil), linked(nil), []commands.Cause{commands.CauseOrder}, ""},
		"suspended here":         {ordered(nil), linked(func(c *hub.SpokeView) { c.State, c.Linked = store.Suspended, false }), []commands.Cause{commands.CauseConnection, commands.CauseOrder}, "spawnmesh connections resume attic"},
		"suspended there":        {accepted(nil), linked(func(c *hub.SpokeView) { busy(c); c.Says.State = commands.ConnSuspended }), []commands.Cause{commands.CauseConnection}, "resumed on its host"},
		"revoked":                {accepted(nil), linked(func(c *hub.SpokeView) { c.State, c.Linked = store.Revoked, false }), []commands.Cause{commands.CauseConnection}, ""},
		"the link is down":       {accepted(nil), linked(func(c *hub.SpokeView) { busy(c); c.Linked, c.Liveness = false, hub.Dead }), []commands.Cause{commands.CauseLink}, "spawnmesh doctor"},
		"silent":                 {accepted(nil), linked(func(c *hub.SpokeView) { busy(c); c.Liveness = hub.Stale }), []commands.Cause{commands.CauseLink, commands.CauseSlots}, ""},
		"a full inbox":           {accepted(nil), linked(func(c *hub.SpokeView) { c.Full = true }), []commands.Cause{commands.CauseInbox}, "--inbox-total"},
		"a restored side":        {accepted(nil), linked(func(c *hub.SpokeView) { c.Differs = "it was restored" }), []commands.Cause{commands.CauseHistories}, ""},
		"a key that ended there": {ordered(nil), linked(func(c *hub.SpokeView) { c.Says.Refuses = &commands.EndedKey{Key: "k1", Code: signing.KeyRevoked} }), []commands.Cause{commands.CauseKey, commands.CauseOrder}, "spawnmesh keys revoke k1"},
		"frozen": {accepted(nil), linked(func(c *hub.SpokeView) {
			c.Frozen, c.FrozenScope = &commands.Freeze{By: "uid:1", Reason: "no"}, "instance"
		}), []commands.Cause{commands.CauseFreeze}, "spawnmesh unfreeze --scope instance"},
		"frozen, and unlinked": {ordered(nil), linked(func(c *hub.SpokeView) { c.Frozen, c.Linked = &commands.Freeze{}, false }), []commands.Cause{commands.CauseLink, commands.CauseFreeze, commands.CauseOrder}, ""},
		"frozen there": {accepted(nil), linked(func(c *hub.SpokeView) {
			c.Says.Freeze = &commands.Freeze{Frozen: true, By: "root", Reason: "no"}
		}), []commands.Cause{commands.CauseFreeze}, "unfrozen there"},
		"a key that ended here": {accepted(nil), linked(func(c *hub.SpokeView) { c.Refuses = &commands.EndedKey{Key: "k1", Code: signing.KeyRevoked} }), []commands.Cause{commands.CauseKey}, "newer one"},
		"a clock that is ahead": {accepted(nil), linked(func(c *hub.SpokeView) {
			c.BeatRefused = &federation.RefusedBeat{Code: signing.TimeFuture, Why: "issued 10m0s in this host's future"}
		}), []commands.Cause{commands.CauseClock}, "compare the clocks"},
		"a full inbox there":      {ordered(nil), linked(func(c *hub.SpokeView) { c.Says.Full = true }), []commands.Cause{commands.CauseInbox, commands.CauseOrder}, ""},
		"a queue nobody reads":    {accepted(nil), linked(func(c *hub.SpokeView) { c.Queues = []federation.QueueView{{Queue: "reports", Problem: "it is stuck"}} }), []commands.Cause{commands.CauseQueue}, "doctor"},
		"stopping, and a disk":    {accepted(nil), linked(func(c *hub.SpokeView) { c.Stopping, c.StartsNone = true, "its disk is short" }), []commands.Cause{commands.CauseStopping, commands.CauseHost}, ""},
		"no isolation":            {accepted(nil), linked(func(c *hub.SpokeView) { c.Isolation = commands.IsolationUnmet }), []commands.Cause{commands.CauseIsolation}, "spawnmesh doctor"},
		"its grant":               {accepted(nil), linked(func(c *hub.SpokeView) { c.Declines = []commands.Decline{{Code: commands.DeclinesExpired}} }), []commands.Cause{commands.CauseGrant}, "its host decides"},
		"no slot":                 {accepted(nil), linked(busy), []commands.Cause{commands.CauseSlots}, ""},
		"its next try":            {accepted(func(v *hub.AgentView) { v.Attempt, v.Attempts = 1, []commands.Ended{{Attempt: 1, Next: 7}} }), linked(nil), []commands.Cause{commands.CauseNotBefore}, ""},
		"a limit of its provider": {accepted(func(v *hub.AgentView) { v.Attempt, v.Reason = 1, commands.Limit }), linked(busy), []commands.Cause{commands.CauseLimit}, ""},
		"nothing that is known":   {accepted(nil), linked(nil), []commands.Cause{commands.CauseState}, "spawnmesh why"},
		"a kill that was refused": {accepted(func(v *hub.AgentView) {
			v.RefusedKill = json.RawMessage(`{"reason":"enough","by":"uid:1","code":"CONFLICT","why":"not now"}`)
		}), linked(busy), []commands.Cause{commands.CauseSlots, commands.CauseKill}, ""},
		"a kill, and a clock": {accepted(func(v *hub.AgentView) { v.Kill = json.RawMessage(`{"reason":"enough","by":"uid:1"}`) }), linked(func(c *hub.SpokeView) { c.ClockOffset = "-5m0s" }),
			[]commands.Cause{commands.CauseState, commands.CauseKill, commands.CauseClock}, ""},
	}
	for name, tt := range tests {
		list := why(t, tt.agent, tt.at)

		var codes []commands.Cause
		for _, r := range list {
			codes = append(codes, r.Code)
		}
		require.Equal(t, tt.codes, codes, name)
		require.Contains(t, list[0].Fix, tt.fix, name)
	}
	list := why(t, accepted(nil), linked(func(c *hub.SpokeView) { busy(c); c.ClockOffset = "-5m0s" }))
	require.Equal(t, []*float64{commands.Figure(4), commands.Figure(-300)}, []*float64{list[0].Figure, list[1].Figure})
	require.Equal(t, "the clock of attic is 5m behind that of this hub", list[1].Text, "either may be wrong")
	require.Equal(t, federation.SetClocks, list[1].Fix)
	next := why(t, tests["its next try"].agent, linked(nil))
	require.Equal(t, time.UnixMilli(7), *next[0].Until)
}

// What became of the last order about a pause is said, and with one that changed nothing the pause in force.
func TestWhatIsSaidOfAPause(t *testing.T) {
	t.Parallel()
	at := func(state string, on bool, before *store.OrderedPause) *store.OrderedPause {
		return &store.OrderedPause{Paused: on, By: "ann", Reason: "so", State: state, Code: commands.Conflict, Why: "it was cancelled", Before: before}
	}
	const pause, resume = "a pause was ordered by ann: so", "a resume was ordered by ann: so"
	for want, p := range map[string]*store.OrderedPause{
		pause: at(store.PauseTaken, true, nil),
		"":    at(store.PauseTaken, false, nil),
		pause + "; its spoke has not taken it yet":                          at(store.PauseSent, true, nil),
		resume + "; it expired before attic took it":                        at(store.PauseExpired, false, nil),
		pause + "; attic refused it: it was cancelled":                      at(store.PauseRefused, true, at(store.PauseTaken, false, nil)),
		pause + "; then " + resume + "; attic refused it: it was cancelled": at(store.PauseRefused, false, at(store.PauseTaken, true, nil)),
		pause + "; then " + resume + "; its spoke has not taken it yet":     at(store.PauseSent, false, at(store.PauseTaken, true, nil)),
		pause + "; then " + resume + "; it expired before attic took it":    at(store.PauseExpired, false, at(store.PauseTaken, true, nil)),
	} {
		raw, err := json.Marshal(p)
		require.NoError(t, err)

		v := hub.AgentView{Mirror: store.Mirror{Spoke: "attic", State: commands.Paused, Pause: raw}}
		require.Equal(t, want, v.PauseSaid())
		require.Equal(t, strings.NewReplacer(": so", "", "it was cancelled", "CONFLICT").Replace(want), v.Brief().PauseSaid())
	}
	for p, state := range map[*store.OrderedPause]commands.State{at(store.PauseTaken, true, nil): commands.Running, at(store.PauseOver, true, nil): commands.Paused} {
		raw, err := json.Marshal(p)
		require.NoError(t, err)
		require.Empty(t, hub.AgentView{Mirror: store.Mirror{Spoke: "attic", State: state, Pause: raw}}.PauseSaid(), "it goes on, or stands still, by another word")
	}
}

// A pause and a resume that their spoke refuses have a next step while the agent has not ended, unless the agent itself forbids them.
func TestWhatToDoAboutARefusedPause(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		state commands.State
		on    bool
		code  commands.Code
		fix   string
	}{
		{commands.Running, true, commands.Grant, "once its host allows it: spawnmesh pause 7"},
		{commands.Queued, true, commands.Grant, "once its host allows it: spawnmesh pause 7"},
		{commands.Paused, false, commands.Grant, "once its host allows it: spawnmesh resume 7"},
		{commands.Paused, true, commands.Grant, "once its host allows it: spawnmesh resume 7"},
		{commands.Paused, true, commands.Conflict, "spawnmesh resume 7"},
		{commands.Running, true, commands.Conflict, ""},
		{commands.Running, true, commands.TooMany, ""},
	} {
		raw, err := json.Marshal(store.OrderedPause{Paused: tt.on, By: "ann", State: store.PauseRefused, Code: tt.code, Why: "no"})
		require.NoError(t, err)
		list := why(t, hub.AgentView{Mirror: store.Mirror{Task: "7", Spoke: "attic", State: tt.state, Pause: raw}}, linked(nil))

		last := list[len(list)-1]
		require.Contains(t, last.Text, "attic refused it: no")
		require.Equal(t, tt.fix, last.Fix, "%v", tt)
	}
	raw, err := json.Marshal(store.OrderedPause{Paused: true, By: "ann", State: store.PauseRefused, Code: commands.Grant})
	require.NoError(t, err)
	for _, r := range why(t, hub.AgentView{Mirror: store.Mirror{Task: "7", Spoke: "attic", State: commands.Completed, Pause: raw}}, linked(nil)) {
		require.NotContains(t, r.Text+r.Fix, "pause")
	}
}

// One that stands still by another word than that of its hub is resumed from there all the same.
func TestWhatAHubHasNotPaused(t *testing.T) {
	t.Parallel()
	list := why(t, hub.AgentView{Mirror: store.Mirror{Task: "7", Spoke: "attic", State: commands.Paused}}, linked(nil))

	require.Len(t, list, 2)
	require.Contains(t, list[1].Text, "its host has paused it")
	require.Equal(t, "spawnmesh resume 7", list[1].Fix)
}

// What runs once more, or would have, is said as what it is.
func TestWhatIsGoneInWords(t *testing.T) {
	t.Parallel()
	then := time.Now()
	for want, m := range map[string]store.Mirror{
		"it is paused, and its process is gone; resumed it runs once more": {State: commands.Paused, Reason: commands.ExecutorDied, Attempt: 1},
		"it is paused": {State: commands.Paused},
		"it has run, and was to run again when the connection was revoked (link_revoked)":          {State: commands.Unavailable, Reason: commands.LinkRevoked, Attempt: 1, Attempts: []commands.Ended{{Attempt: 1}}},
		"it could not be run (link_revoked)":                                                       {State: commands.Unavailable, Reason: commands.LinkRevoked},
		"attic did not answer the order to kill it in time; whether it ran is not known here":      {Spoke: "attic", State: commands.Unavailable, Reason: commands.KillRequested, AcceptedAt: &then},
		"attic did not answer the order to cancel it in time; what became of it is not known here": {Spoke: "attic", State: commands.Unavailable, Reason: commands.CancelRequested, AcceptedAt: &then, StartedAt: &then, Attempt: 1},
		"it was killed before it ran":                                                              {State: commands.Unavailable, Reason: commands.KillRequested, Result: json.RawMessage(`{"state":"unavailable","reason":"kill_requested","summary":"killed"}`)},
		"it was cancelled before it ran":                                                           {State: commands.Unavailable, Reason: commands.CancelRequested, Result: json.RawMessage(`{"state":"unavailable","reason":"cancel_requested","summary":"x"}`)},
	} {
		require.Equal(t, want, hub.AgentView{Mirror: m}.Clause())
		require.Equal(t, want, hub.AgentView{Mirror: m}.Brief().Clause())
	}
}

// Why an agent ended tells the reason where its summary does not, and what the agent itself said.
func TestWhyAnAgentEnded(t *testing.T) {
	t.Parallel()
	exit := func(code int) commands.Exit { return commands.Exit{Code: code} }
	for want, r := range map[string]commands.Result{
		"it has failed (overran its estimate): ended by SIGTERM":     {State: commands.Failed, Reason: commands.Overrun, Exit: commands.Exit{Code: -1, Signal: "SIGTERM"}},
		"it has failed (no retry is left): exit code 3":              {State: commands.Failed, Reason: commands.RetriesExhausted, Exit: exit(3)},
		"it has failed (it was lost too often): the host went down":  {State: commands.Failed, Reason: commands.ReclaimsExhausted, Exit: commands.Exit{Code: -1, Error: "the host went down"}},
		"it was cancelled: killed":                                   {State: commands.Cancelled, Reason: commands.KillRequested},
		"it has expired: ended at its timeout":                       {State: commands.Expired, Reason: commands.DeadlineElapsed},
		"it has failed: out of memory: 70 MiB of 64 MiB":             {State: commands.Failed, Reason: commands.OOMKilled, Exit: commands.Exit{Code: -1, Signal: "SIGKILL", Breach: &commands.Breach{Limit: commands.OOMKilled, Unit: "bytes", Allowed: 64 << 20, Measured: 70 << 20}}},
		"it has failed: exit code 3":                                 {State: commands.Failed, Exit: exit(3)},
		"it has completed; it said \"done\": fixed 3 files":          {State: commands.Completed, Exit: exit(0), Reported: &commands.Report{As: commands.SaidDone, Text: "fixed\n3 files"}},
		"it has failed: exit code 1; it said \"failed\": no network": {State: commands.Failed, Exit: exit(1), Reported: &commands.Report{As: commands.SaidFailed, Text: "no network"}},
		"it has failed: exit code 1; it said that it has failed and a retry is of no use: no such branch": {State: commands.Failed, Exit: exit(1),
			Reported: &commands.Report{As: commands.SaidFailed, Text: "no such branch", Final: true}},
	} {
		r.Summary = r.Sentence()
		raw, err := json.Marshal(r)
		require.NoError(t, err)
		v := hub.AgentView{Mirror: store.Mirror{Spoke: "attic", State: r.State, Reason: r.Reason, Result: raw, ConnState: store.Active}}

		require.Equal(t, want, why(t, v, linked(nil))[0].Text)
		require.Equal(t, want, hub.WhyHere(v, hub.Host{})[0].Text)
	}
}

// Of a kill that this hub knows nothing of it is said who may have ordered it.
func TestAKillOfSomebodyElse(t *testing.T) {
	t.Parallel()
	const elsewhere = "its host has ordered the kill, or this hub before it was restored from a backup"
	of := func(reason commands.Reason, kill string) hub.AgentView {
		return hub.AgentView{Mirror: store.Mirror{Spoke: "attic", State: commands.Cancelled, Reason: reason, Kill: json.RawMessage(kill), ConnState: store.Active}}
	}

	require.Equal(t, elsewhere, why(t, of(commands.KillRequested, ""), linked(nil))[1].Text)
	require.Empty(t, of(commands.KillRequested, `{"by":"uid:0","reason":"x"}`).KilledElsewhere())
	require.Empty(t, of(commands.CancelRequested, "").KilledElsewhere())
}

// An agent that a fault of its host kept from starting says so, as far as who asks may know.
func TestWhatKeptAnAttemptFromStarting(t *testing.T) {
	t.Parallel()
	v := hub.AgentView{Mirror: store.Mirror{State: commands.Queued, Attempt: 2, Attempts: []commands.Ended{{Attempt: 1, Outcome: commands.AttemptFailed, Exit: commands.Exit{Code: 1}},
		{Attempt: 2, Outcome: commands.Released, Exit: commands.Exit{Code: -1, Error: "starting /srv: too many open files"}, Next: 1}}}}

	require.Equal(t, "attempt 2 could not be started, spent no retry, and is followed by another one: starting /srv: too many open files", v.NextTry().Text)
	require.EqualValues(t, 1, v.NextTry().Until.UnixMilli())
	require.Equal(t, "it waits for its next try", v.Brief().NextTry().Text)
}

// An agent that a limit of its provider has parked is said to wait for what it met.
func TestWhatAParkedAgentHasMet(t *testing.T) {
	t.Parallel()
	for code, met := range map[int]string{75: "(exit code 75);", 1: "(exit code 1, and its output has words of limit_patterns in the policy there);"} {
		v := hub.AgentView{Mirror: store.Mirror{State: commands.Queued, Reason: commands.Limit, Attempt: 1, Attempts: []commands.Ended{{Attempt: 1, Outcome: commands.Parked, Exit: commands.Exit{Code: code}, Next: 1}}}}

		next := v.NextTry()

		require.Equal(t, commands.CauseLimit, next.Code)
		require.Contains(t, next.Text, met)
		require.EqualValues(t, 1, next.Until.UnixMilli())
	}
}
