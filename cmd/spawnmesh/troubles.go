package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// unmet is what is wrong with a spoke that says [commands.IsolationUnmet].
const unmet = "it cannot confine agents as its policy demands; on its host, spawnmesh doctor says why"

// inboxNext is what makes room for messages of peers.
const inboxNext = "start this instance with a larger --inbox-per-peer or --inbox-total, or give up the signed bytes of old messages: spawnmesh retention envelopes 7d"

// whatKeeps is what keeps a spoke from taking work, as far as its hub knows: each reason as
// what the spoke does, or what is done to it. What a spoke says of itself counts while it is heard.
func (a *app) whatKeeps(v connectionView) (list []backlog.WhyReason) {
	add := func(stage, what string, since *time.Time, hint string) {
		list = append(list, backlog.WhyReason{Stage: stage, What: what, Since: since, Hint: hint})
	}
	switch {
	case v.State.Ended():
		add("connection", fmt.Sprintf("is %s by %s: %s", v.State, v.By, v.Reason), &v.Since, "it never comes back; its host may join again: spawnmesh invite --name "+v.Name)
		return list
	case v.State == store.Suspended:
		add("connection", "is "+suspension(v), &v.Since, commands.ShellLine([]string{"spawnmesh", "connections", "resume", v.Name}))
	case v.State != store.Active:
		add("connection", "is "+string(v.State), &v.Since, "")
	case suspension(v) != "":
		add("connection", "is "+suspension(v), nil, "it is resumed on its host: spawnmesh connections resume "+v.ID)
	}
	switch {
	case !v.Linked && v.State == store.Suspended: // which cuts the link
	case !v.Linked && v.LastSeen == nil:
		add("link", "is not linked, and was not heard of since this hub started", nil, "start it on its host: spawnmesh spoke run")
	case !v.Linked:
		add("link", "is not linked", v.LastSeen, "on its host: spawnmesh doctor; it links again by itself when it runs and reaches this hub")
	case v.LastSeen == nil:
		add("link", "is linked, and has said nothing yet", v.LinkedSince, "wait for its first heartbeat")
	case v.Liveness == "stale" || v.Liveness == "dead":
		add("link", "is linked, and nothing is heard of it", v.LastSeen, "on its host: spawnmesh doctor")
	}
	list = append(list, a.troubles(v)...)
	if v.Linked && v.Liveness == "alive" && v.Running >= v.Slots {
		add("slots", fmt.Sprintf("has all of its %d slots in use; what is ordered waits there", v.Slots), nil, "it goes on when an agent ends; its host may start it with more: spawnmesh spoke run --slots N")
	}
	return list
}

// troubles is what is wrong with a connection that is not ended, but for who has suspended it
// and for its link.
func (a *app) troubles(v connectionView) (list []backlog.WhyReason) {
	if v.State.Ended() {
		return nil
	}
	add := func(is bool, stage, what, hint string) {
		if is {
			list = append(list, backlog.WhyReason{Stage: stage, What: what, Hint: hint})
		}
	}
	if f := v.Frozen; f != nil && !isSpoke(v) {
		since := time.UnixMilli(f.Since)
		list = append(list, backlog.WhyReason{Stage: "freeze", What: fmt.Sprintf("nothing that it orders is started: frozen here by %s: %s; to lift that: %s", f.By, inLine(f.Reason), a.lift(v)), Since: &since})
	} else if f != nil {
		since := time.UnixMilli(f.Since)
		list = append(list, backlog.WhyReason{Stage: "freeze", What: fmt.Sprintf("gets nothing: what is ordered on it is frozen by %s: %s", f.By, inLine(f.Reason)), Since: &since, Hint: a.lift(v)})
	}
	if f := v.Says.Freeze; f != nil && f.Frozen {
		since := time.UnixMilli(f.Since)
		list = append(list, backlog.WhyReason{Stage: "freeze", What: fmt.Sprintf("has frozen its agents: %s: %s", inLine(f.By), inLine(f.Reason)), Since: &since, Hint: "nothing new is started for it until it is unfrozen there"})
	}
	add(v.Stopping && v.Linked, "stopping", "is stopping, and starts nothing more", "it goes on when it is started again on its host")
	add(v.Isolation == commands.IsolationUnmet && v.Linked, "isolation", "starts no program: "+unmet, "")
	add(v.StartsNone != "" && v.Linked, "host", "starts nothing now: "+inLine(v.StartsNone), "it goes on by itself when that is mended on its host")
	add(v.Differs != "" && v.Linked, "histories", "nothing is relayed: "+v.Differs, "")
	if r := v.Says.Refuses; r != nil {
		add(true, "key", fmt.Sprintf("refuses the key that this instance signs with (%s); run: %s", r.Code, a.mendRefused(v)), "")
	}
	if v.Refuses != nil {
		add(true, "key", endedKey(v.Refuses), "")
	}
	for _, note := range overRate(v) {
		add(true, "rate", note, "")
	}
	for _, q := range v.Queues {
		add(q.Problem != "", "queue", q.Queue+": "+q.Problem, "")
	}
	return list
}

// lift is the command that ends the freeze of this side that holds up a connection.
func (a *app) lift(v connectionView) string {
	return a.line("unfreeze", "--scope", v.FrozenScope, "--reason", "WHY")
}

// auditRefused says that the peer of a connection refuses the audit of this instance; "" where it does not.
func auditRefused(v connectionView) string {
	if h := v.Says.Audit; h != nil && h.Refused != "" && !v.State.Ended() {
		return "refuses the audit of this instance: " + inLine(h.Refused)
	}
	return ""
}

// verdictOn says whether a spoke takes work, or what first keeps it from that.
func (a *app) verdictOn(v connectionView) string {
	reasons := a.whatKeeps(v)
	if len(reasons) == 0 {
		return "takes work"
	}
	since := reasons[0].Since
	switch {
	case since == nil:
		return reasons[0].What
	case a.output == "wide":
		return reasons[0].What + " since " + clock(since)
	}
	return fmt.Sprintf("%s (%s)", reasons[0].What, ago(*since))
}

func (a *app) printConnections(views []connectionView) error {
	if err := printList(a, views, a.tableOf(views)); err != nil || !a.forPeople() {
		return err
	}
	for _, v := range views {
		notes := []string{cmp.Or(suspension(v), unlinked(v))}
		for _, r := range a.troubles(v) {
			notes = append(notes, r.What)
		}
		notes = append(notes, auditRefused(v))
		if v.RefusesKeys != "" && !v.State.Ended() {
			notes = append(notes, a.refusedKeys(v.RefusesKeys))
		}
		for _, note := range notes {
			if note != "" {
				fmt.Fprintf(a.out, "%s: %s\n", printable(v.Name), printable(note))
			}
		}
	}
	return nil
}

func (a *app) tableOf(views []connectionView) table {
	t := table{head: []string{"NAME", "STATE", "LINK", "SEEN", "SLOTS", "RUNNING", "QUEUED"}, wide: []string{"KILL LEVEL", "ISOLATION", "CAPABILITIES", "UNCONFIRMED", "ID", "INSTANCE", "WEIGHT"},
		empty: "no connections; a hub invites a spoke: " + a.line("invite", "--name", "NAME") + "; a spoke takes the token: " + a.line("spoke", "join", "--token-file", "FILE")}
	if both(views) {
		t.head = slices.Insert(t.head, 1, "IS")
	}
	return a.fillPeers(t, views)
}

// mendRefused is how a peer that refuses the key in use is told newer ones.
func (a *app) mendRefused(v connectionView) string {
	return a.line(federation.MendKey(v.Says.Refuses.Key, v.KeyRevoked)...)
}

// refusedKeys says what a peer has done with the newest keys, and how it is told newer ones.
func (a *app) refusedKeys(code signing.Code) string {
	return fmt.Sprintf("has refused the newest keys of this instance (%s), and still trusts those before; to tell it newer ones: %s", code, a.line("keys", "rotate"))
}

// endedKey says what a peer is to do that signs with a key which verifies nothing here.
func endedKey(r *commands.EndedKey) string {
	return fmt.Sprintf("signs with the key %s, which has ended here (%s), so nothing of it is taken; its operator has to tell a newer one", r.Key, r.Code)
}

// overRate says which side sends more than the other takes, while they are linked.
func overRate(v connectionView) (notes []string) {
	if v.Linked && v.Says.Limited {
		notes = append(notes, "takes less than this instance sends; what is above its rate waits here")
	}
	if v.Linked && v.Limited {
		notes = append(notes, "sends more than this instance takes; what is above the rate waits there")
	}
	if v.Linked && v.Says.Full {
		notes = append(notes, "keeps no more messages of this instance until there is room there; they wait here")
	}
	if v.Full {
		notes = append(notes, "no more of its messages are kept here"+sinceOf(v.FullSince)+"; they wait there; to make room, "+inboxNext)
	}
	return notes
}

// sinceOf is " since" a time; "" for none.
func sinceOf(at *time.Time) string {
	if at == nil {
		return ""
	}
	return " since " + clock(at)
}
