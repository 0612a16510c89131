package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/store"
)

// printAgent shows one agent, and of each stream in its result the last lines; below 0: all that is there.
func (a *app) printAgent(v agentView, lines int) error {
	if !a.forPeople() {
		return a.print(v, []any{v}, table{names: []string{v.Task}})
	}
	r := resultOf(v.AgentView)
	list := agentPairs(v)
	if b := r.Exit.Breach; b != nil {
		list.add("ended by", fmt.Sprintf("%s: %d of %d %s", b.Limit, b.Measured, b.Allowed, b.Unit))
	}
	list.add("limits", limitsIn(r.Exit))
	list.addWord(r)
	for _, p := range r.Reaped {
		list.add("reaped", fmt.Sprintf("%d %s", p.Pid, p.Command))
	}
	for _, p := range r.Survivors {
		list.add("survives", fmt.Sprintf("%d %s", p.Pid, p.Command))
	}
	for _, rc := range v.Receipts {
		list.add("receipt", receiptLine(rc))
	}
	for _, f := range v.RefusedReports {
		list.add("report refused", fmt.Sprintf("by %s: %s seq %d (%s); it had no effect there", f.Hub, f.Kind, f.Seq, f.Code))
	}
	if err := a.align(list, 0); err != nil {
		return err
	}
	a.printEnd("stdout", r.Stdout, lines)
	a.printEnd("stderr", r.Stderr, lines)
	return nil
}

func agentPairs(v agentView) pairs {
	var list pairs
	list.add("id", commands.ShortID(v.Task)+" ("+v.Task+")")
	list.add("title", v.Title)
	list.add("spoke", inConnection(v.Spoke, v.ConnState))
	list.add("hub", inConnection(v.Hub, v.ConnState))
	list.add("command", commandLine(v.Spec))
	list.add("labels", v.Labels.Text())
	list = append(list, askedOf(v.Spec)...)
	list.add("state", v.InWords())
	var refused commands.RefusedBody
	if v.Refusal != nil && json.Unmarshal(v.Refusal, &refused) == nil {
		list.add("hint", saidBy(v.Spoke, refused.Hint))
	}
	if !v.Refused() { // else the state names them
		for _, r := range v.Refusals {
			list.add("refused", r.String())
		}
	}
	list.add("verdict", verdictWords(v))
	list.add("progress", progressWords(v.Progress))
	list.add("takes", takes(v))
	list.add("estimate", estimateOf(v))
	if v.Session != "" {
		list.add("session", v.Session+" ("+v.SessionState+")")
	}
	list.add("policy", v.Policy) // of the spoke, the version that decided last
	list.add("isolation", v.Isolation)
	if v.ExitCode != nil {
		list.add("exit code", strconv.Itoa(*v.ExitCode))
	}
	for _, line := range attemptsOf(v) {
		list.add("attempt", line)
	}
	if !v.State.Terminal() { // else its sentence says it
		list.add("last error", errorWords(v.LastError))
	}
	if r := retriesOf(v.Spec); r != "" {
		list.add("retries", r)
	}
	list.add("ordered", stamp(&v.CreatedAt, nil)+" by "+v.CreatedBy)
	list.add("schedule", v.Schedule)
	list.add("retry of", shortOf(v.RetryOf))
	list.add("retried as", shortOf(v.RetriedAs))
	list.add("accepted", happened(v.AcceptedAt, v.AcceptedTold, v.CreatedAt))
	list.add("started", happened(v.StartedAt, v.StartedTold, v.CreatedAt))
	list.add(endedAs(v), happened(v.EndedAt, v.EndedTold, v.CreatedAt))
	list.add("archived", stamp(v.ArchivedAt, nil))
	if v.StartedAt == nil && !v.State.Terminal() {
		list.add("expires", v.ExpiresAt.Local().Format(time.DateTime)+" (not started later than this)")
	}
	list = append(list, v.ends()...)
	list.add("pause", v.PauseSaid())
	list.add("review", v.ReviewSaid())
	for _, p := range v.KillIncomplete {
		list.add("kill incomplete", fmt.Sprintf("process %d (%s) is in state %s at %q and does not end; it is killed again every 10 s", p.Pid, p.Command, p.State, p.Wchan))
	}
	list.add("directory", v.Dir)
	return list
}

// verdictWords say what an agent is at, and what shows it.
func verdictWords(v agentView) string {
	if v.Verdict == nil {
		return ""
	}
	return fmt.Sprintf("%s: %s", v.Verdict.Word, v.Verdict.Evidence)
}

// takes is what the processes of an agent take.
func takes(v agentView) string {
	if v.Memory == 0 && v.CPUMS == 0 {
		return ""
	}
	return fmt.Sprintf("%s of memory, %s of processor time so far", mebibytes(v.Memory), time.Duration(v.CPUMS)*time.Millisecond)
}

// estimateOf is how long an agent is thought to take, and whether it takes much longer.
func estimateOf(v agentView) string {
	var s commands.Spawn
	_ = json.Unmarshal(v.Spec, &s) // our own hub wrote it
	switch {
	case s.EstimateMS == 0:
		return ""
	case v.Overrun:
		since, until := "", ""
		if v.OverrunSince != nil {
			since = " since " + localTime(*v.OverrunSince)
		}
		if v.OverrunUntil != nil {
			until = " at " + localTime(*v.OverrunUntil)
		}
		return fmt.Sprintf("%s; it takes much longer%s, and is ended%s where it tells no progress", commands.Lasting(s.Estimate()), since, until)
	}
	return commands.Lasting(s.Estimate())
}

// limitsIn says what the limits of an agent have done. Which of them the kernel does not hold is
// the same for all agents of a host, and doctor says it there: here it is only said of an agent
// that a limit has ended.
func limitsIn(exit commands.Exit) string {
	text, only := strings.CutPrefix(exit.Limits, "limits ")
	if only && exit.Breach == nil {
		return ""
	}
	return text
}

// ends are the orders to end an agent.
func (v agentView) ends() (list pairs) {
	if k := store.ReadKill(v.Kill); k != nil {
		said := orderedEnd(k)
		if v.ProtocolCancel == "unavailable" && (v.Unheard || !v.State.Terminal()) {
			said += " (its spoke has not taken it yet)"
		}
		list.add(k.Word(), said)
	}
	if said := v.Finishes(); said != "" {
		list.add("cancel", said)
	}
	if said := v.KilledElsewhere(); said != "" && v.Hub == "" {
		list.add("kill", said)
	}
	if k := store.ReadKill(v.RefusedKill); k != nil {
		list.add(k.Word(), orderedEnd(k)+"; "+v.NotKilled())
	}
	return list
}

// orderedEnd says who ordered the end of an agent, and why.
func orderedEnd(k *store.OrderedKill) string {
	by := k.By
	if k.At != nil { // the host's own kills have none
		by += k.At.Local().Format(" at " + time.DateTime)
	}
	return fmt.Sprintf("ordered by %s: %s", by, k.Reason)
}

// shortOf is the short id of a task; "" of none.
func shortOf(task string) string {
	if task == "" {
		return ""
	}
	return commands.ShortID(task)
}

// inConnection names a peer, and says when nothing more is heard of it.
func inConnection(name string, state store.ConnState) string {
	if name == "" || state == store.Active {
		return name
	}
	return fmt.Sprintf("%s (the connection is %s)", name, state)
}

// resultOf returns an agent's result; it is empty when there is none.
func resultOf(v hub.AgentView) commands.Result {
	r, _ := commands.ReadResult(v.Result)
	return r
}

// stamp is a time for people, with how long after the order it was.
func stamp(t, from *time.Time) string {
	if t == nil {
		return ""
	}
	text := t.Local().Format("2006-01-02 15:04:05.000")
	if from != nil {
		text += fmt.Sprintf("  +%s", t.Sub(*from).Round(time.Millisecond))
	}
	return text
}

// happened shows when something happened, and when the hub heard of it if the
// clock of the spoke says that this was at another time; told is nil where no
// other clock is asked.
func happened(at, told *time.Time, ordered time.Time) string {
	if told == nil || told.Sub(*at).Abs() < 2*time.Second {
		return stamp(at, &ordered)
	}
	return stamp(at, nil) + " by its spoke's clock, told " + stamp(told, &ordered)
}
