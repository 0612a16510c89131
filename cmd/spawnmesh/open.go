package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// openOnHub says of an agent that has not ended what it waits for, or that it
// runs, as far as its hub knows.
func (a *app) openOnHub(ctx context.Context, c *control.Client, v hub.AgentView) (string, error) {
	w, err := control.Answer(c.API().ExplainTaskWithResponse(ctx, v.Task, nil))
	return a.reasonLines(each(w.Reasons, reasonFrom)), err
}

// reasonLines says reasons, one a line, so that the words of a spoke end where its line does: each with since when it holds and
// what would change it.
func (a *app) reasonLines(list []commands.WhyReason) string {
	var parts []string
	for _, r := range list {
		part := saidBy(r.Where, r.Text)
		if r.Where == "" {
			part = r.Text
		}
		switch r.Code {
		case commands.CauseEnded, commands.CauseState:
		case commands.CauseKill:
			part += " (" + clock(r.Since) + ")"
		default:
			part += span(r.Since, r.Until)
		}
		switch command := strings.HasPrefix(r.Fix, "spawnmesh "); {
		case r.Fix == "":
		case r.Where != "":
			part += "; there: " + r.Fix
		case command && r.Code == commands.CauseEnded:
			part += "; to order it again: " + a.pasted(r.Fix)
		case command:
			part += ": " + a.pasted(r.Fix)
		default:
			part += "; " + r.Fix
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "\n")
}

// whyHere says how an agent stands that runs, or ran, on this host, in the words of
// its spoke; "" where it waits, which has reasons, and for more than its next try.
func whyHere(v agentView, w backlog.Why, runs bool) string {
	until := w.Task.LeaseUntil
	switch {
	case v.State.Terminal() && v.ConnState.Ended():
		return fmt.Sprintf("%s; the connection with %s is %s", v.Clause(), v.Hub, v.ConnState)
	case v.State.Terminal():
		return v.Clause()
	case v.State == commands.Queued && v.Attempt > 0 && len(w.Reasons) == 1 && w.Reasons[0].Code == commands.CauseNotBefore:
		return waitsForNext(v.AgentView)
	case until == nil:
		return ""
	case runs:
		here := fmt.Sprintf("%s here, as attempt %d", v.Clause(), v.Attempt)
		if told, _ := v.Stalls(); told != "" {
			here += "; " + told
		}
		return here
	case time.Now().Before(*until):
		return fmt.Sprintf("it was running here as attempt %d, and no spoke runs: one that is started before %s goes on with it", v.Attempt, clock(until))
	}
	return fmt.Sprintf("it was running here as attempt %d until no spoke ran any more; its lease ended at %s, and its shim has ended it then", v.Attempt, clock(until))
}

// statusOnHost says what else the host of an open agent may want to know.
func (a *app) statusOnHost(ctx context.Context, v agentView) error {
	runs, err := a.hostRuns(ctx)
	switch {
	case err != nil:
		return err
	case v.State == commands.Queued:
		fmt.Fprintf(a.err, "\nwhy it waits: %s\n", a.line("why", commands.ShortID(v.Task)))
	case !runs:
		fmt.Fprintf(a.err, "\nno spoke runs here: this is what the last one wrote; start it with: %s\n", a.line("spoke", "run"))
	}
	return nil
}
