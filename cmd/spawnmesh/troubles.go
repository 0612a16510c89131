package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/signing"
)

// faults is what is wrong with a connection, but for its state and its link.
func faults(v connectionView) (list []commands.WhyReason) {
	for _, r := range v.Reasons {
		if r.Code != commands.CauseConnection && r.Code != commands.CauseLink && r.Code != commands.CauseSlots {
			list = append(list, r)
		}
	}
	return list
}

// withFix is a reason in one line, with what would change it.
func (a *app) withFix(r commands.WhyReason) string {
	fix := a.pasted(r.Fix)
	switch {
	case fix == "":
		return r.Text
	case strings.HasPrefix(r.Fix, "spawnmesh "):
		return r.Text + "; run: " + fix
	}
	return r.Text + "; " + fix
}

// auditRefused says that the peer of a connection refuses the audit of this instance; "" where it does not.
func auditRefused(v connectionView) string {
	if h := v.Says.Audit; h != nil && h.Refused != "" && !v.State.Ended() {
		return "refuses the audit of this instance: " + commands.OneLine(h.Refused)
	}
	return ""
}

// verdictOn says whether a spoke takes work, or what first keeps it from that.
func (a *app) verdictOn(v connectionView) string {
	if len(v.Reasons) == 0 {
		return "takes work"
	}
	return a.briefly(v.Reasons[0])
}

// briefly is a reason with since when it holds.
func (a *app) briefly(r commands.WhyReason) string {
	switch {
	case r.Since == nil:
		return r.Text
	case a.output == "wide":
		return r.Text + " since " + clock(r.Since)
	}
	return fmt.Sprintf("%s (%s)", r.Text, ago(*r.Since))
}

func (a *app) printConnections(views []connectionView) error {
	if err := printList(a, views, a.tableOf(views)); err != nil || !a.forPeople() {
		return err
	}
	for _, v := range views {
		notes := []string{cmp.Or(suspension(v), unlinked(v))}
		for _, r := range faults(v) {
			notes = append(notes, a.withFix(r))
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
