package main

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store"
)

// What why says of an agent is a sentence, however the agent stands.
func TestHowAnAgentStands(t *testing.T) {
	t.Parallel()
	result := func(state commands.State, summary string) hub.AgentView {
		raw, err := json.Marshal(&commands.Result{State: state, Summary: summary})
		require.NoError(t, err)
		return hub.AgentView{Mirror: store.Mirror{State: state, Result: raw}}
	}
	refused := hub.AgentView{Mirror: store.Mirror{State: commands.Unavailable, Reason: commands.PolicyDenied, Refusal: json.RawMessage(`{}`),
		Refusals: []store.Refusal{{Spoke: "attic", Code: commands.Policy, Why: "no"}}}}
	began := time.Now()
	tests := map[string]hub.AgentView{
		"the connection was revoked while it ran; what became of it is not known here": {Mirror: store.Mirror{State: commands.Unavailable, Reason: commands.LinkRevoked, StartedAt: &began}},
		"the connection was revoked when attic had accepted it; whether it ran is not known here": {
			Mirror: store.Mirror{State: commands.Unavailable, Reason: commands.LinkRevoked, Spoke: "attic", AcceptedAt: &began}},
		"it is running (link_revoked)":                         {Mirror: store.Mirror{State: commands.Running, Reason: commands.LinkRevoked, StartedAt: &began}},
		"it was refused by attic: no (POLICY)":                 refused,
		"it has failed: exit code 3":                           result(commands.Failed, "exit code 3"),
		"it has completed":                                     result(commands.Completed, "completed"),
		"it was cancelled: killed after 3s":                    result(commands.Cancelled, "killed after 3s"),
		"it is running":                                        {Mirror: store.Mirror{State: commands.Running}},
		"it is about to start":                                 {Mirror: store.Mirror{State: commands.Claimed}},
		"it has expired (command_expired)":                     {Mirror: store.Mirror{State: commands.Expired, Reason: commands.CommandExpired}},
		"it could not be run (link_revoked)":                   {Mirror: store.Mirror{State: commands.Unavailable, Reason: commands.LinkRevoked}},
		"it is " + string(commands.Paused):                     {Mirror: store.Mirror{State: commands.Paused}},
		"it waits for input":                                   {Mirror: store.Mirror{State: commands.AwaitingInput}},
		"it was cancelled (" + string(commands.Operator) + ")": {Mirror: store.Mirror{State: commands.Cancelled, Reason: commands.Operator}},
	}
	lost := result(commands.Failed, "the shim ended without a record")
	lost.Reason = commands.ExecutorDied
	require.Equal(t, "ended", endedAs(agentView{AgentView: lost}))
	lost.Result = json.RawMessage(`{"state":"failed","outcome":"interrupted","exit":{"code":-1},"summary":"the shim ended without a record"}`)
	require.Equal(t, "found lost", endedAs(agentView{AgentView: lost}))
	tests["it was lost: the shim ended without a record; what it had done until then stays done; order it again, and --on-loss rerun where that may be repeated"] = lost
	tests["it was lost; what it had done until then stays done; order it again, and --on-loss rerun where that may be repeated"] =
		hub.AgentView{Mirror: store.Mirror{State: commands.Failed, Reason: commands.ExecutorDied}} // as a viewer sees it
	for want, v := range tests {
		require.Equal(t, want, v.Clause())
	}
	waited := store.Mirror{State: commands.Unavailable, Reason: commands.LinkRevoked, StartedAt: &began, Attempt: 1, Attempts: []commands.Ended{{Attempt: 1, Outcome: commands.Interrupted}}}
	require.Equal(t, "it has run, and was to run again when the connection was revoked (link_revoked)", hub.AgentView{Mirror: waited}.Clause())
	revoked := tests["the connection was revoked while it ran; what became of it is not known here"]
	require.Contains(t, agentPairs(agentView{AgentView: revoked}),
		[]string{"state", "unavailable (link_revoked): the connection was revoked while it ran; what became of it is not known here"})
	require.Equal(t, "given up", endedAs(agentView{AgentView: revoked}))
	reaped := revoked // as its spoke has it
	reaped.State = commands.Cancelled
	require.Equal(t, "ended", endedAs(agentView{AgentView: reaped}))
}

// A run that was lost and repeated shows each of its attempts; of the only one the
// number is enough.
func TestEachAttemptIsShown(t *testing.T) {
	t.Parallel()
	found := time.Date(2026, 3, 1, 8, 57, 21, 0, time.Local)
	lost := commands.Ended{Attempt: 1, Outcome: commands.Interrupted, Reason: commands.ExecutorDied, Exit: commands.Exit{Code: -1, Error: "the shim ended without a record"},
		At: found.UnixMilli(), Next: found.Add(time.Minute).UnixMilli()}
	failed := commands.Ended{Attempt: 2, Outcome: commands.AttemptFailed, Exit: commands.Exit{Code: 3}, At: found.UnixMilli()}
	limited := commands.Ended{Attempt: 1, Outcome: commands.AttemptFailed, Reason: commands.OOMKilled, At: found.UnixMilli(),
		Exit: commands.Exit{Code: -1, Signal: "SIGKILL", Breach: &commands.Breach{Limit: commands.OOMKilled, Unit: "bytes", Allowed: 64 << 20, Measured: 70 << 20}}}
	parked := lost
	parked.Outcome, parked.Reason, parked.Exit = commands.Parked, commands.Limit, commands.Exit{Code: 75}
	tests := map[string]struct {
		mirror store.Mirror
		lines  []string
		next   string
	}{
		"not begun": {store.Mirror{State: commands.Queued}, nil, ""},
		"only one":  {store.Mirror{State: commands.Completed, Attempt: 1}, []string{"1"}, ""},
		"lost once": {store.Mirror{State: commands.Queued, Attempt: 1, Attempts: []commands.Ended{lost}},
			[]string{"1  lost (executor_died), found 2026-03-01 08:57:21.000: the shim ended without a record"}, ", not before 2026-03-01 08:58:21"},
		"at a limit of its provider": {store.Mirror{State: commands.Queued, Reason: commands.Limit, Attempt: 1, Attempts: []commands.Ended{parked}},
			[]string{"1  parked (limit), 2026-03-01 08:57:21.000: exit code 75"}, ", not before 2026-03-01 08:58:21"},
		"at its limit of memory": {store.Mirror{State: commands.Running, Attempt: 2, Attempts: []commands.Ended{limited}},
			[]string{"1  failed (oom_killed), 2026-03-01 08:57:21.000: out of memory: 70 MiB of 64 MiB", "2  running"}, ""},
		"lost, failed and run again": {store.Mirror{State: commands.Running, Attempt: 3, Attempts: []commands.Ended{failed, lost}},
			[]string{"1  lost (executor_died), found 2026-03-01 08:57:21.000: the shim ended without a record", "2  failed, 2026-03-01 08:57:21.000: exit code 3", "3  running"}, ""},
	}
	for name, tt := range tests {
		v := hub.AgentView{Mirror: tt.mirror}

		require.Equal(t, tt.lines, attemptsOf(agentView{AgentView: v}), name)
		next := ""
		if until := v.NextTry().Until; until != nil {
			next = ", not before " + clock(until)
		}
		require.Equal(t, tt.next, next, name)
	}
}

// An agent that does not end although it was killed is shown with what is left of it.
func TestAKillThatIsIncompleteIsShown(t *testing.T) {
	t.Parallel()
	v := agentView{AgentView: hub.AgentView{Mirror: store.Mirror{State: commands.Running}}, KillIncomplete: []supervisor.Survivor{{Pid: 7, Command: "cp", State: "D", Wchan: "nfs_wait"}}}

	require.Contains(t, agentPairs(v), []string{"kill incomplete", `process 7 (cp) is in state D at "nfs_wait" and does not end; it is killed again every 10 s`})
}

// A kill that ended its agent before its answer was made did not come too late.
func TestAKillThatComesTooLate(t *testing.T) {
	t.Parallel()
	killed := func(s commands.State, ordered bool) hub.Killed {
		return hub.Killed{Mirror: store.Mirror{Task: "7", State: s}, Ordered: ordered}
	}
	require.Nil(t, endedBefore(killed(commands.Cancelled, true)))
	require.Nil(t, endedBefore(killed(commands.Running, true)))
	require.Nil(t, endedBefore(killed(commands.Running, false)), "as a spoke answers")
	require.Equal(t, "agent 7 has ended already: completed", endedBefore(killed(commands.Completed, false)).Why)
}

// whyText is what a person reads of an agent, without times.
func whyText(v hub.AgentView, conn connectionView) string {
	said := (&app{dataDir: "/of/the/hub"}).reasonLines(hub.Why(v, conn.SpokeView))
	return regexp.MustCompile(` \((since|until)[^)]*\)`).ReplaceAllString(strings.ReplaceAll(said, "\n", "; "), "")
}

// What a spoke has accepted it runs, also while nobody hears of it.
func TestWhatAQueuedAgentWaitsFor(t *testing.T) {
	t.Parallel()
	now := time.Now()
	conn := func(state store.ConnState, linked bool, says commands.ConnectionView) connectionView {
		var seen *time.Time
		if linked {
			seen = &now
		}
		return connectionView{SpokeView: hub.SpokeView{Standing: federation.Standing{Connection: store.Connection{Name: "attic", State: state}, Linked: linked, LastSeen: seen, Says: says}, Liveness: hub.Late, Slots: 4}}
	}
	ordered, accepted := hub.AgentView{Mirror: store.Mirror{Spoke: "attic", State: commands.Queued}}, hub.AgentView{Mirror: store.Mirror{Spoke: "attic", State: commands.Queued, AcceptedAt: &now, Task: "7"}}
	again := accepted
	again.Attempt = 1
	second := accepted
	second.Before = new(int)
	*second.Before = 1
	busy, full := conn(store.Active, true, commands.ConnectionView{}), conn(store.Active, true, commands.ConnectionView{})
	busy.Running, full.StartsNone = 4, "its disk has 7 MiB free, and nothing is started below 1024 MiB (limits.reserve)"
	holds := commands.ConnectionView{State: "suspended", Reason: "holiday"}
	differs := conn(store.Active, true, holds)
	differs.Differs = "it was restored"
	heard := now.Add(-5 * time.Minute)
	silent := conn(store.Active, true, commands.ConnectionView{})
	silent.LastSeen, silent.Running = &heard, 4
	alive := silent
	alive.Liveness = hub.Alive
	kept := conn(store.Active, true, commands.ConnectionView{})
	kept.Full = true
	tests := map[string]struct {
		agent hub.AgentView
		conn  connectionView
	}{
		"it waits for the connection with attic, which is suspended":                                                                                                                                                             {ordered, conn(store.Suspended, false, commands.ConnectionView{})},
		"attic has accepted it and may have started it; what became of it is told when the connection, which is suspended, is resumed":                                                                                           {accepted, conn(store.Suspended, false, commands.ConnectionView{})},
		"attic: is suspended by attic: holiday; it is resumed on its host: spawnmesh connections resume ":                                                                                                                        {ordered, conn(store.Active, true, holds)},
		"it waits for the link with attic, which is down (never heard of)":                                                                                                                                                       {ordered, conn(store.Active, false, commands.ConnectionView{})},
		"attic has accepted it and may have started it; what became of it is told when the link, which is down (never heard of), is up":                                                                                          {accepted, conn(store.Active, false, commands.ConnectionView{})},
		"it waits, as far as is known here; nothing is relayed to or from attic: it was restored":                                                                                                                                {accepted, differs},
		"it waits, as far as is known here; no more messages of attic are kept here, so it may have run and ended; to make room, " + strings.Replace(federation.InboxNext, "spawnmesh ", "spawnmesh --data-dir /of/the/hub ", 1): {ordered, kept},
		"it waits for attic to accept it": {ordered, conn(store.Active, true, commands.ConnectionView{})},
		"it waits for a free slot on attic, which has 4; attic is late with its heartbeats":    {accepted, silent},
		"it waits for a free slot on attic, which has 4; 1 order of this hub stands before it": {second, alive},
		"it waits for its next try":                      {again, conn(store.Active, true, commands.ConnectionView{})},
		"it waits for a free slot on attic, which has 4": {accepted, busy},
		"it waits for attic to start it, which had 0 of its 4 slots taken when it last said so; where that stays, every reason is seen on its host: spawnmesh why 7":       {accepted, conn(store.Active, true, commands.ConnectionView{})},
		"attic: starts nothing now: its disk has 7 MiB free, and nothing is started below 1024 MiB (limits.reserve); it goes on by itself when that is mended on its host": {accepted, full},
	}
	for want, tt := range tests {
		said := whyText(tt.agent, tt.conn)

		require.True(t, strings.HasPrefix(said, want), "%s\nis not\n%s", said, want)
	}
}

// A list of connections has short cells, sentences below it, and no numbers that
// nobody knows.
func TestConnectionsAsATable(t *testing.T) {
	t.Parallel()
	seen := time.Now().Add(-94 * time.Second)
	spoke := func(name string, state store.ConnState, liveness hub.Liveness, says commands.ConnectionView) connectionView {
		return connectionView{SpokeView: hub.SpokeView{Standing: federation.Standing{Connection: store.Connection{Name: name, State: state, By: "uid:0", Reason: "holiday", Authority: store.Commands}, LastSeen: &seen, Says: says},
			Liveness: liveness, Slots: 4, Running: 3, Queued: 20}}
	}
	long := "lab says: two instances run with the key of barn and are heard by turns"
	away := connectionView{SpokeView: hub.SpokeView{Standing: federation.Standing{Connection: store.Connection{Name: "lab", State: store.Active, Authority: store.Obeys}}}, LinkError: "dialling lab:7422: refused"}
	views := []connectionView{spoke("attic", store.Active, hub.Alive, commands.ConnectionView{State: "active"}), spoke("barn", store.Active, hub.Alive, commands.ConnectionView{State: "suspended", Reason: long}),
		spoke("cellar", store.Active, hub.Dead, commands.ConnectionView{}), spoke("loft", store.Suspended, hub.Late, commands.ConnectionView{}), spoke("shed", store.Revoked, hub.Ended, commands.ConnectionView{}), away}
	views[4].Since = seen
	var out bytes.Buffer
	a := &app{out: &out, output: "table"}

	require.NoError(t, a.printConnections(views))

	require.Equal(t, `NAME    IS     STATE              LINK  SEEN       SLOTS  RUNNING  QUEUED
attic   spoke  active             down  alive 94s  4      3        20
barn    spoke  suspended by barn  down  alive 94s  4      3        20
cellar  spoke  active             down  dead 94s   4      -        -
loft    spoke  suspended          down  late 94s   4      -        -
shed    spoke  revoked            -     ended 94s  -      -        -
lab     hub    active             down  -          -      0        -
barn: suspended by barn: `+long+`
loft: suspended by uid:0: holiday
lab: not linked: dialling lab:7422: refused
`, out.String())
	out.Reset()
	require.NoError(t, a.printConnection(views[2]))
	require.Regexp(t, `(?m)^agents +3 running, 20 queued, 4 slots, as of its last heartbeat, 94s ago$`, out.String())
	out.Reset()
	require.NoError(t, a.printConnection(views[1]))
	require.Regexp(t, `(?m)^suspended +by barn: lab says`, out.String())
	out.Reset()
	require.NoError(t, a.printConnection(away))
	require.Regexp(t, `(?m)^link +not linked: dialling lab:7422: refused$`, out.String())
	out.Reset()
	require.NoError(t, a.printConnection(views[4]))
	require.NotRegexp(t, `(?m)^(link|seen|agents) `, out.String())
}

// served is v with its reasons, as an instance serves it.
func served(v connectionView) connectionView {
	v.Reasons = v.Keeps()
	return v
}

// A peer that refuses our key is seen in the list, with what to do.
func TestAPeerThatRefusesOurKeyIsSeenInTheList(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	v := connectionView{SpokeView: hub.SpokeView{Standing: federation.Standing{Connection: store.Connection{Name: "attic", State: store.Active, Authority: store.Commands},
		Says: commands.ConnectionView{State: "active", Refuses: &commands.EndedKey{Key: "ed25519:kkk", Code: signing.KeyWindow}}}}}

	require.NoError(t, (&app{out: &out, output: "table"}).printConnections([]connectionView{served(v)}))

	require.Contains(t, out.String(), "attic: refuses the key that this instance signs with (KEY_WINDOW); run: spawnmesh keys revoke ed25519:kkk --reason restored\n")
}

// So it is on the side that refuses.
func TestAPeerWhoseKeyHasEndedIsSeenInTheList(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	v := connectionView{SpokeView: hub.SpokeView{Standing: federation.Standing{Connection: store.Connection{Name: "lab", State: store.Active, Authority: store.Obeys},
		Refuses: &commands.EndedKey{Key: "ed25519:kkk", Code: signing.KeyWindow}}}}

	require.NoError(t, (&app{out: &out, output: "table"}).printConnections([]connectionView{served(v)}))

	require.Contains(t, out.String(), "lab: signs with the key ed25519:kkk, which has ended here (KEY_WINDOW), so nothing of it is taken; its operator has to tell a newer one\n")
}

// Both sides see who sends more than the other takes, while they are linked.
func TestAPeerAboveItsRateIsSeenInTheList(t *testing.T) {
	t.Parallel()
	said := "attic: takes less than this instance sends; what is above its rate waits here\n"
	sends := "attic: sends more than this instance takes; what is above the rate waits there\n"
	for name, tt := range map[string]struct {
		linked, says, limited bool
		want                  string
	}{
		"the peer says so":                 {true, true, false, said},
		"the peer is above its rate":       {true, false, true, sends},
		"both":                             {true, true, true, said + sends},
		"neither":                          {true, false, false, ""},
		"the peer said so, before it left": {false, true, false, ""},
	} {
		var out bytes.Buffer
		v := connectionView{SpokeView: hub.SpokeView{Standing: federation.Standing{Connection: store.Connection{Name: "attic", State: store.Active, Authority: store.Commands},
			Linked: tt.linked, Limited: tt.limited, Says: commands.ConnectionView{State: "active", Limited: tt.says}}}}

		require.NoError(t, (&app{out: &out, output: "table"}).printConnections([]connectionView{served(v)}))

		_, below, _ := strings.Cut(out.String(), "\n")
		_, below, _ = strings.Cut(below, "\n")
		require.Equal(t, tt.want, below, name)
	}
}

// What doctor says to do is not cut off at the edge of a terminal.
func TestAWholeTableOnANarrowTerminal(t *testing.T) {
	t.Parallel()
	problem := strings.Repeat("wrong ", 20) + "run: this"

	lines := shownOn(t, 40, 2, func(screen *os.File) error {
		return (&app{out: screen, output: "table"}).print(nil, nil, table{head: []string{"CHECK", "RESULT"}, rows: [][]string{{"key", problem}}, whole: true})
	})

	require.Contains(t, lines[1], problem)
}

// On a narrow terminal the state gives way before the command is lost.
func TestAgentsOnANarrowTerminal(t *testing.T) {
	t.Parallel()
	made := time.Now().Add(-5 * time.Second)
	list := []agentView{{AgentView: hub.AgentView{Mirror: store.Mirror{Task: newID(), Spoke: "cellar", State: commands.Unavailable, Reason: commands.ReclaimsExhausted, Title: "the nightly run of all", CreatedAt: made}}},
		{AgentView: hub.AgentView{Mirror: store.Mirror{Task: newID(), Spoke: "attic", State: commands.Running, Title: "another one", CreatedAt: made}}}}

	lines := shownOn(t, 60, 3, func(screen *os.File) error { return (&app{out: screen, output: "table"}).printAgents(list, "") })

	require.Regexp(t, `^\S{8}  cellar  unavailable \(r…  5s   the nightly run of …$`, lines[1])
	require.Regexp(t, `^\S{8}  attic   running          5s   another one$`, lines[2])
}

// A long title does not cut the states where there is room for them.
func TestALongTitleLeavesRoomForTheState(t *testing.T) {
	t.Parallel()
	v := agentView{AgentView: hub.AgentView{Mirror: store.Mirror{Task: newID(), Spoke: "attic", State: commands.Unavailable, Reason: commands.Frozen,
		Title: strings.Repeat("title ", 8), CreatedAt: time.Now()}}}

	lines := shownOn(t, 100, 2, func(screen *os.File) error {
		return (&app{out: screen, output: "table"}).printAgents([]agentView{v}, "")
	})

	require.Contains(t, lines[1], "unavailable (frozen)")
}

// What a row is about, and why, is seen on a narrow terminal: other columns go first.
func TestTheAuditAndTheKeysOnANarrowTerminal(t *testing.T) {
	t.Parallel()
	row := api.AuditRow{Seq: 1234, At: time.Date(2026, 3, 1, 8, 57, 21, 0, time.Local), Actor: "mi1wtqde7h5plkzcn4t53pxvdj3rfcoqpbp", Action: "connection.suspended",
		Object: "01a20149-c73b-7584-a03e-cd5ad760d4e2", Code: "RESYNC", Why: "the order was given after the backup, and the peer has it"}
	keys := api.Keys{Identity: "ed25519:iiiiiiiiiiiii", Signing: []api.SigningKey{{ID: "ed25519:ccccccccccccc", State: "current", SignsFor: []string{"attic", "barn"}}}}
	for columns, audit := range map[int]string{
		60:  `^connection\.suspended  01a20149-c73b-7584…  the order was gi…$`,
		80:  `^03-01 08:57:21  connection\.suspended  01a20149-c73b-7584\S*…  the order was.*…$`,
		120: `^1234 +2026-03-01 08:57:21\.000 +connection\.suspended +01a20149-c73b-7584\S* +\S.*the order was.*…$`,
	} {
		lines := shownOn(t, columns, 2, func(screen *os.File) error {
			return (&app{out: screen, output: "table"}).printAudit([]api.AuditRow{row})
		})
		require.Regexp(t, audit, lines[1])

		lines = shownOn(t, columns, 3, func(screen *os.File) error { return (&app{out: screen, output: "table"}).printKeys(keys) })
		require.Regexp(t, `^OF .*STATE .*KEY +SIGNS FOR$`, lines[0])
		require.Regexp(t, `current .*cccccccccccc  attic,barn$`, lines[2])
	}
}

// A task has one name in every row about it, and the row of a claim says which attempt it is.
func TestATaskHasOneNameInTheAudit(t *testing.T) {
	t.Parallel()
	const task = "01a20149-c73b-7584-a03e-cd5ad760d4e2"
	for _, action := range []string{"task.queued", "task.claimed", "operator.failed", "worker.failed"} {
		require.Equal(t, commands.ShortID(task), (&app{output: "table"}).objectOf(api.AuditRow{Action: action, Object: task, Why: "attempt 1"}), action)
		require.Equal(t, task, (&app{output: "wide"}).objectOf(api.AuditRow{Action: action, Object: task}), action)
	}
	require.Equal(t, task, (&app{output: "table"}).objectOf(api.AuditRow{Action: "message.refused", Object: task}))
	require.Equal(t, task, (&app{output: "table"}).objectOf(api.AuditRow{Action: "task.claimed", Object: task, Why: "2 tasks"}), "a claim is found by its whole id alone")
}

// Whoever resumes an agent is told whose pause that has ended, where it was another side's, and that none is known of one that runs.
func TestAResumeSaysWhosePauseItWas(t *testing.T) {
	t.Parallel()
	at := func(state commands.State, hosted, pause string) hub.Killed {
		return hub.Killed{Mirror: store.Mirror{State: state, Pause: json.RawMessage(pause)}, Hub: hosted}
	}
	const nobodys = "is running, and no pause of it is known here"
	for want, list := range map[string][]hub.Killed{
		nobodys: {at(commands.Running, "", `{"state":"sent"}`), at(commands.Running, "", `{"state":"sent","before":{"paused":false,"state":"taken"}}`), at(commands.Running, "", ""), at(commands.Running, "lab", `{"state":"taken"}`)},
		"": {at(commands.Running, "", `{"state":"sent","before":{"paused":true,"state":"sent"}}`), at(commands.Queued, "", `{"state":"sent"}`),
			at(commands.Paused, "", `{"state":"sent","before":{"paused":true,"state":"taken"}}`), at(commands.Paused, "lab", `{"state":"taken","before":{"paused":true,"by":"uid:0"}}`)},
		"had been paused by its host, or by this hub before it was restored from a backup; the newest word counts, so it goes on": {at(commands.Paused, "", `{"state":"sent"}`), at(commands.Paused, "", `{"state":"sent","before":{"paused":false,"state":"taken"}}`)},
		"had been paused by its hub lab: the disk; the newest word counts, so it goes on":                                         {at(commands.Paused, "lab", `{"state":"taken","before":{"paused":true,"by":"lab","reason":"the disk"}}`), at(commands.Running, "lab", `{"state":"taken","before":{"paused":true,"by":"lab","reason":"the disk"}}`)},
		"had been paused by its hub lab; the newest word counts, so it goes on":                                                   {at(commands.Queued, "lab", `{"state":"taken","before":{"paused":true,"by":"lab"}}`)},
	} {
		for _, m := range list {
			require.Equal(t, want, overruled(m), string(m.Pause))
		}
	}
}

// A terminal shows some characters in two cells, and some in none.
func TestCellsOfATerminal(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"": 0, "abc": 3, "日本語": 6, "e\u0301": 1, "ｱ": 1, "Ａ": 2, "🙂": 2} {
		require.Equal(t, want, cells(text), text)
	}
	require.Equal(t, "日本…", shorten("日本語です", 6))
	require.Equal(t, "日本…", shorten("日本語です", 5))
	require.Equal(t, "日本語", shorten("日本語", 6))
}

// A peer that has ended the key that tells it of the new one is never told.
func TestWhoHasNotConfirmedANewKey(t *testing.T) {
	t.Parallel()
	conn := func(name string, r *commands.EndedKey) connectionView {
		return connectionView{SpokeView: hub.SpokeView{Standing: federation.Standing{Connection: store.Connection{Name: name, State: store.Active}, Says: commands.ConnectionView{Refuses: r}}}}
	}
	conns := []connectionView{conn("attic", &commands.EndedKey{Key: "ed25519:kkk", Code: signing.KeyWindow}), conn("barn", nil), conn("cellar", &commands.EndedKey{Key: "ed25519:kkk"})}

	lines := (&app{dataDir: "H"}).unconfirmed([]string{"attic", "barn"}, conns)

	require.Equal(t, []string{"attic refuses the key that tells it: spawnmesh --data-dir H keys revoke ed25519:kkk --reason restored",
		"not confirmed yet by: barn; they are told when they are linked; see: spawnmesh --data-dir H keys list"}, lines)
}

// An end is not taken for the time until which a key verifies.
func TestKeysAsATable(t *testing.T) {
	t.Parallel()
	at := func(day int) time.Time { return time.Date(2030, 1, day, 0, 0, 0, 0, time.Local) }
	v := api.Keys{Identity: "ed25519:iiiiiiiiiiiii", Signing: []api.SigningKey{{ID: "ed25519:ccccccccccccc", State: "current", Since: at(2)},
		{ID: "ed25519:ooooooooooooo", State: "old", Since: at(1), RetiredAt: at(2), VerifiesUntil: at(9)}}, Peers: []api.PeerKey{{Peer: "attic", ID: "ed25519:ppppppppppppp", Use: "signing", State: "valid", Since: at(1), Until: at(8)}}}
	var out bytes.Buffer

	require.NoError(t, (&app{out: &out, output: "wide"}).printKeys(v))

	text := out.String()
	require.Regexp(t, `^OF +USE +STATE +SINCE +KEY +SIGNS FOR +ENDED +VERIFIES UNTIL +ID\n`, text)
	require.Regexp(t, `(?m) old .* 2030-01-02 00:00:00 +2030-01-09 00:00:00 +ed25519:o+$`, text)
	require.Regexp(t, `(?m)^attic .* - +2030-01-08 00:00:00 +ed25519:p+$`, text)
}

// Data of an agent that are long are shown by their beginning, on one line, with where all of them are.
func TestLongDataIsShownByItsBeginning(t *testing.T) {
	t.Parallel()
	short, long := `{"a": 1}`, `"`+strings.Repeat("é", 300)+`"`

	require.Equal(t, short, dataGlance(commands.Result{Data: short}))
	require.Equal(t, `"`+strings.Repeat("é", 199)+`… (602 bytes; all of it with -o json)`, dataGlance(commands.Result{Data: long}))
	require.Empty(t, dataGlance(commands.Result{}))
}
