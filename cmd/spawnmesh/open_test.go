package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/store"
)

// An agent whose host is gone is running as far as its hub knows. What the hub
// says of it names the time of that knowledge, and what to do.
func TestAnAgentOfAHostThatIsGone(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	h, s := hand{t: t, dir: m.Hub.Dir}, hand{t: t, dir: m.Spokes["attic"].Dir}
	g := newGate(t)
	id := h.spawn("--spoke", "attic", "--", "sh", "-c", g.wait())
	h.runs(id)
	require.Equal(t, "it is running\n", h.do("why", id))
	require.NotContains(t, s.run("", "status", id).err, "no spoke runs here")

	m.Spokes["attic"].Kill()

	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for the hub to miss attic", func() (bool, error) {
		return strings.Contains(h.do("why", id), "as attic last said"), nil
	}))
	require.Contains(t, h.do("why", id), "the link is down; it may come back by itself, and the agent may go on meanwhile")
	require.NotContains(t, h.do("why", id), "revoke")
	require.Equal(t, "attic is not linked and has not been told yet; it is told when it dials this hub again\n", h.run("", "connections", "suspend", "attic", "--reason", "away").err)
	require.Empty(t, h.run("", "connections", "suspend", "attic", "--reason", "away").err, "it was so before")
	require.Empty(t, h.run("", "connections", "resume", "attic").err)
	require.Contains(t, h.run("", "status", id).err, "it is running, as attic last said")
	require.Contains(t, s.run("", "status", id).err, "no spoke runs here")
}

// To revoke is final, and is named only for a host that has been silent for longer
// than its lease; a suspension names who did it and how it ends.
func TestWhatIsSaidOfARunningAgent(t *testing.T) {
	t.Parallel()
	v := hub.AgentView{Mirror: store.Mirror{Spoke: "attic", State: commands.Running}}
	conn := func(state store.ConnState, linked bool, liveness hub.Liveness, silent time.Duration) func() connectionView {
		return func() connectionView {
			seen := time.Now().Add(-silent)
			v := connectionView{SpokeView: hub.SpokeView{Standing: federation.Standing{Connection: store.Connection{Name: "attic", State: state, By: "uid:7", Reason: "holiday"}, Linked: linked, LastSeen: &seen}, Liveness: liveness}}
			if !linked {
				v.DownSince = &seen
			}
			return v
		}
	}
	with := func(change func(*connectionView), conn func() connectionView) func() connectionView {
		return func() connectionView { c := conn(); change(&c); return c }
	}
	for name, test := range map[string]struct {
		conn func() connectionView
		want string
	}{
		"linked and heard":              {conn(store.Active, true, hub.Alive, 0), "it is running"},
		"with a full inbox":             {with(func(c *connectionView) { c.Full = true }, conn(store.Active, true, hub.Alive, 0)), "it is running; no more messages of attic are kept here, so it may have run and ended; to make room, " + strings.Replace(federation.InboxNext, "spawnmesh ", "spawnmesh --data-dir /of/the/hub ", 1)},
		"linked and late":               {conn(store.Active, true, hub.Late, 40*time.Second), "it is running, as attic last said; attic is late with its heartbeats"},
		"down for a moment":             {conn(store.Active, false, hub.Alive, 11*time.Second), "it is running, as attic last said; the link is down; it may come back by itself, and the agent may go on meanwhile"},
		"down for less than a lease":    {conn(store.Active, false, hub.Dead, 50*time.Second), "it is running, as attic last said; the link is down; it may come back by itself, and the agent may go on meanwhile"},
		"down since before this run":    {with(func(c *connectionView) { c.DownSince, c.LastSeen = nil, new(time.Unix(1_790_000_000, 0)) }, conn(store.Active, false, hub.Stale, 0)), "it is running, as attic last said; the link is down (heard last at 2026-09-21T14:13:20Z); it may come back by itself, and the agent may go on meanwhile"},
		"linked and silent":             {conn(store.Active, true, hub.Stale, 40*time.Second), "it is running, as attic last said; the link is up and nothing is heard over it; it may come back by itself, and the agent may go on meanwhile"},
		"silent within its lease":       {with(func(c *connectionView) { c.LeaseMS = 600_000 }, conn(store.Active, false, hub.Dead, 80*time.Second)), "it is running, as attic last said; the link is down; it may come back by itself, and the agent may go on meanwhile"},
		"suspended by its spoke":        {with(func(c *connectionView) { c.Says = commands.ConnectionView{State: "suspended", Reason: "lunch"} }, conn(store.Active, true, hub.Alive, 0)), "it is running; attic has suspended the connection and starts nothing more: lunch"},
		"restored":                      {with(func(c *connectionView) { c.Differs = "it was restored" }, conn(store.Active, true, hub.Alive, 0)), "it is running; this is what is known here, and nothing is relayed to or from attic: it was restored"},
		"suspended for a moment":        {conn(store.Suspended, false, hub.Alive, 5*time.Second), "it is running, as attic last said; the connection is suspended by uid:7: holiday; the agent may go on, and what became of it is told after: spawnmesh --data-dir /of/the/hub connections resume attic"},
		"suspended for longer":          {conn(store.Suspended, false, hub.Dead, 80*time.Second), "it is running, as attic last said; the connection is suspended by uid:7: holiday; the agent may go on, and what became of it is told after: spawnmesh --data-dir /of/the/hub connections resume attic"},
		"silent for longer than leases": {conn(store.Active, false, hub.Dead, 80*time.Second), "it is running, as attic last said; the link is down; when the host is back, it says what became of the agent; only if the host is gone for good: spawnmesh --data-dir /of/the/hub connections revoke attic --reason WHY"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			said := whyText(v, test.conn())

			require.Equal(t, test.want, said)
		})
	}
}

// The host of an agent reads how it stands here as its hub would say it, and what keeps it.
func TestHowAnAgentStandsOnItsHost(t *testing.T) {
	t.Parallel()
	at := func(d time.Duration) *time.Time { u := time.Now().Add(d); return &u }
	frozen := commands.WhyReason{Code: commands.CauseFreeze, Text: "instance is frozen"}
	for name, test := range map[string]struct {
		state commands.State
		conn  store.ConnState
		until *time.Time
		away  bool
		want  string
		waits []commands.WhyReason
	}{
		"it waits":                      {state: commands.Queued, conn: store.Active, want: `^nothing keeps it: it is about to be started$`},
		"it waits for its next try":     {state: commands.Queued, conn: store.Active, want: `^it waits for its next try \(until \S+ \S+\)$`, waits: []commands.WhyReason{{Code: commands.CauseNotBefore}}},
		"it waits for more":             {state: commands.Queued, conn: store.Active, want: `^instance is frozen\nit waits for its next try \(until \S+ \S+\)$`, waits: []commands.WhyReason{frozen, {Code: commands.CauseNotBefore}}},
		"it runs":                       {state: commands.Running, conn: store.Active, until: at(time.Hour), want: `^it is running here, as attempt 2$`},
		"it asks":                       {state: commands.AwaitingInput, conn: store.Active, until: at(time.Hour), want: `^which one\?$`, waits: []commands.WhyReason{{Code: commands.CauseQuestion, Text: "which one?"}, {Code: commands.CauseLease}}},
		"it is paused":                  {state: commands.Paused, conn: store.Active, want: `^it is paused$`, waits: []commands.WhyReason{{Code: commands.CauseState}}},
		"its spoke is away":             {state: commands.Running, conn: store.Active, until: at(time.Hour), away: true, want: `^it was running here as attempt 2, and no spoke runs: one that is started in time goes on with it \(until \S+ \S+\): .*spoke run$`},
		"its spoke is away too long":    {state: commands.Running, conn: store.Active, until: at(-time.Minute), away: true, want: `^it was running here as attempt 2 until no spoke ran any more; its lease has ended, and its shim has ended it then \(until \S+ \S+\): .*spoke run$`},
		"it has ended":                  {state: commands.Completed, conn: store.Active, want: `^it has completed$`},
		"it was ended by its hub's end": {state: commands.Cancelled, conn: store.Revoked, want: `^it was cancelled\nthe connection with lab is revoked$`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := hub.AgentView{Mirror: store.Mirror{Task: "7", State: test.state, ConnState: test.conn, Attempt: 2, Attempts: []commands.Ended{{Attempt: 2, Next: 1}}}}

			said := (&app{}).reasonLines(hub.WhyHere(v, hub.Host{Hub: "lab", Runs: !test.away, Lease: test.until, Reasons: test.waits}))

			require.Regexp(t, test.want, said)
		})
	}
}

// A next step is for the instance that was asked, also where words stand before the command; one for another host stays as it is.
func TestANextStepIsForTheInstanceThatWasAsked(t *testing.T) {
	t.Parallel()
	a := &app{dataDir: "/lab"}
	for want, r := range map[string]commands.WhyReason{
		"refused; once its host allows it: spawnmesh --data-dir /lab kill 7 --reason WHY": {Code: commands.CauseKill, Text: "refused", Fix: "once its host allows it: spawnmesh kill 7 --reason WHY"},
		"it waits: spawnmesh --data-dir /lab lane resume x":                               {Code: commands.CauseLane, Text: "it waits", Fix: "spawnmesh lane resume x"},
		"its clock; set the clock of its host":                                            {Code: commands.CauseClock, Text: "its clock", Fix: "set the clock of its host"},
		"it was refused; attic says: spawnmesh kill --all":                                {Code: commands.CauseEnded, Text: "it was refused", Fix: "attic says: spawnmesh kill --all"},
		"attic says: no slot; there: spawnmesh lane resume x":                             {Code: commands.CauseLane, Text: "no slot", Where: "attic", Fix: "spawnmesh lane resume x"},
	} {
		require.Equal(t, want, a.reasonLines([]commands.WhyReason{r}))
	}
}

// A person reads when something happened, and when the hub heard of it if that was
// later.
func TestWhenItHappened(t *testing.T) {
	t.Parallel()
	ordered := time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)
	told := ordered.Add(2 * time.Minute)
	at := func(d time.Duration) *time.Time { t := ordered.Add(d); return &t }
	for name, test := range map[string]struct {
		at, told *time.Time
		want     string
	}{
		"it did not":            {nil, nil, ""},
		"only one clock":        {&told, nil, "2026-03-01 12:02:00.000  +2m0s"},
		"told at once":          {at(119 * time.Second), &told, "2026-03-01 12:01:59.000  +1m59s"},
		"told after an outage":  {at(5 * time.Second), &told, "2026-03-01 12:00:05.000 by its spoke's clock, told 2026-03-01 12:02:00.000  +2m0s"},
		"a clock an hour ahead": {at(62 * time.Minute), &told, "2026-03-01 13:02:00.000 by its spoke's clock, told 2026-03-01 12:02:00.000  +2m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			require.Equal(t, test.want, happened(test.at, test.told, ordered))
		})
	}
}
