package commands

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a peer counts and which times it names is used in sums and shown as dates: numbers
// that cannot be are refused.
func TestNumbersThatCannotBe(t *testing.T) {
	t.Parallel()
	const task = "01920000-0000-7000-8000-000000000001"
	beat := func(change func(*Heartbeat)) Body {
		h := &Heartbeat{IntervalMS: 1000, Connection: ConnectionView{State: "active"}, Slots: 4, Running: 4, Queued: 10_000_000, Agents: []AgentBeat{{Task: task, Attempt: 1, State: Running}}}
		change(h)
		return h
	}
	result := func(change func(*Result)) Body {
		r := &Result{Task: task, State: Failed, Attempt: 1, StartedAt: 1795321755872, EndedAt: 1795321759888}
		change(r)
		return r
	}
	require.NoError(t, beat(func(*Heartbeat) {}).Validate())
	require.NoError(t, beat(func(h *Heartbeat) { h.Agents = agentsThatProgress(100) }).Validate())
	require.NoError(t, result(func(*Result) {}).Validate())
	for _, level := range append([]string{"", IsolationUnmet}, IsolationLevels...) {
		require.NoError(t, beat(func(h *Heartbeat) { h.Isolation = level }).Validate())
	}
	require.NoError(t, beat(func(h *Heartbeat) { h.Declines = []Decline{{Code: "of_a_newer_spoke", What: "agent.newer"}} }).Validate(), "it is shown by its code")
	for name, bad := range map[string]Body{
		"a policy without a form":     beat(func(h *Heartbeat) { h.Policy = "V 1" }),
		"a capability without a form": beat(func(h *Heartbeat) { h.Capabilities = []string{"go build\x1b[2J"} }),
		"a capability of 65 letters":  beat(func(h *Heartbeat) { h.Capabilities = []string{strings.Repeat("a", 65)} }),
		"too many capabilities":       beat(func(h *Heartbeat) { h.Capabilities = slices.Repeat([]string{"a"}, 257) }),
		"a kill level without a form": beat(func(h *Heartbeat) { h.KillLevel = "tree\n" }),
		"a level that is none":        beat(func(h *Heartbeat) { h.Isolation = "gaol" }),
		"17 reasons to decline":       beat(func(h *Heartbeat) { h.Declines = slices.Repeat([]Decline{{Code: DeclinesPolicy}}, MaxDeclines+1) }),
		"a decline without a form":    beat(func(h *Heartbeat) { h.Declines = []Decline{{Code: "no\nmore"}} }),
		"a decline of no kind":        beat(func(h *Heartbeat) { h.Declines = []Decline{{Code: DeclinesKind, What: "Agent Spawn"}} }),
		"a decline before 1970":       beat(func(h *Heartbeat) { h.Declines = []Decline{{Code: DeclinesExpired, Since: -1}} }),
		"a version of 257 bytes":      beat(func(h *Heartbeat) { h.Version = strings.Repeat("1", 257) }),
		"a name of blobs in words":    beat(func(h *Heartbeat) { h.Connection.Blobs = "all of them" }),
		"a long name of blobs":        beat(func(h *Heartbeat) { h.Connection.Blobs = strings.Repeat("0", 81) }),
		"a freeze of number -1":       beat(func(h *Heartbeat) { h.Connection.Heeds = -1 }),
		"agents that are -5":          beat(func(h *Heartbeat) { h.Running = -5 }),
		"2^53 slots":                  beat(func(h *Heartbeat) { h.Slots = 1 << 53 }),
		"an outcome that is none":     result(func(r *Result) { r.Outcome = "splendid" }),
		"an outcome of an attempt":    &Ended{Task: task, Attempt: 1, State: Queued, At: 1, Outcome: "splendid"},
		"an attempt without outcome":  &Ended{Task: task, Attempt: 1, State: Queued, At: 1},
		"a process below 0":           result(func(r *Result) { r.Reaped = []Process{{Pid: -1, Command: "init"}} }),
		"a start of no process":       &Started{Task: task, Attempt: 1, At: 1, Pid: math.MaxInt64},
		"a standing of that outcome": beat(func(h *Heartbeat) {
			h.Connection.Numbers = &Numbering{Recalled: &Recalled{From: 1, Through: 1, Tasks: []TaskStanding{{Task: task, Command: task, SHA256: strings.Repeat("a", 64), State: Failed, Outcome: "splendid"}}}}
		}),
		"a standing of exit code 999": beat(func(h *Heartbeat) {
			h.Connection.Numbers = &Numbering{Recalled: &Recalled{From: 1, Through: 1, Tasks: []TaskStanding{{Task: task, Command: task, SHA256: strings.Repeat("a", 64), State: Failed, Code: 999}}}}
		}),
		"an agent twice":               beat(func(h *Heartbeat) { h.Agents = append(h.Agents, AgentBeat{Task: task, Attempt: 2, State: Running}) }),
		"progress of 101 agents":       beat(func(h *Heartbeat) { h.Agents = agentsThatProgress(101) }),
		"slots below 0":                beat(func(h *Heartbeat) { h.Slots = -1 }),
		"more slots than can be":       beat(func(h *Heartbeat) { h.Slots = math.MaxInt64 }),
		"agents below 0":               beat(func(h *Heartbeat) { h.Running = -1 }),
		"more agents than can be":      beat(func(h *Heartbeat) { h.Running = math.MaxInt64 }),
		"orders below 0":               beat(func(h *Heartbeat) { h.Queued = -1 }),
		"more orders than can be":      beat(func(h *Heartbeat) { h.Queued = math.MaxInt64 }),
		"memory below 0":               beat(func(h *Heartbeat) { h.Agents[0].RSS = -1 }),
		"processor time out of range":  beat(func(h *Heartbeat) { h.Agents[0].CPUMS = math.MaxInt64 }),
		"an attempt below 0":           beat(func(h *Heartbeat) { h.Agents[0].Attempt = -1 }),
		"a lease below 0":              beat(func(h *Heartbeat) { h.LeaseMS = -1 }),
		"a lease of all times":         beat(func(h *Heartbeat) { h.LeaseMS = math.MaxInt64 }),
		"a next attempt before 1970":   &Ended{Task: task, Attempt: 1, Outcome: Released, State: Queued, At: 1, Next: -1},
		"a start before 1970":          result(func(r *Result) { r.StartedAt = -1 }),
		"an end before 1970":           result(func(r *Result) { r.EndedAt = math.MinInt64 }),
		"an end after the year 9999":   result(func(r *Result) { r.EndedAt = math.MaxInt64 }),
		"an exit code of no program":   result(func(r *Result) { r.Exit.Code = 256 }),
		"a limit that there is not":    result(func(r *Result) { r.Exit.Breach = &Breach{Limit: LinkDown, Unit: "bytes"} }),
		"a limit in no unit":           result(func(r *Result) { r.Exit.Breach = &Breach{Limit: OOMKilled, Unit: "pounds"} }),
		"a limit below 0":              result(func(r *Result) { r.Exit.Breach = &Breach{Limit: OOMKilled, Unit: "bytes", Allowed: -1} }),
		"a measure of all":             &Ended{Task: task, Attempt: 1, Outcome: Released, State: Queued, At: 1, Exit: Exit{Breach: &Breach{Limit: OOMKilled, Unit: "bytes", Measured: math.MaxInt64}}},
		"a start of that kind":         &Started{Task: task, Attempt: 1, At: math.MaxInt64},
		"an end of an attempt of that": &Ended{Task: task, Attempt: 1, Outcome: Released, State: Queued, At: -1},
		"an end by a kill of that":     &Killed{Task: task, State: Cancelled, At: math.MaxInt64},
		"a state at that time":         &TaskState{Task: task, State: Running, At: math.MaxInt64},
		"a next attempt at that time":  &TaskState{Task: task, State: Queued, At: 1, Next: math.MaxInt64},
	} {
		require.Equal(t, Validation, CodeOf(bad.Validate()), name)
	}
	for _, good := range []Body{&Started{Task: task, Attempt: 1, At: 1}, &Ended{Task: task, Attempt: 1, Outcome: Released, State: Queued, At: 1}, &Killed{Task: task, State: Cancelled, At: 1}, &TaskState{Task: task, State: Running, At: 1}} {
		require.NoError(t, good.Validate())
	}
}

func agentsThatProgress(n int) (list []AgentBeat) {
	for i := range n {
		list = append(list, AgentBeat{Task: fmt.Sprintf("01920000-0000-7000-8000-%012x", i), Attempt: 1, State: Running, Progress: &AgentProgress{Progress: Progress{Step: "tests"}, At: 1}})
	}
	return list
}
