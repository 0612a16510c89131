package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

// reasonsOf says of an agent that has not ended what it waits for, or that it
// runs, as far as its hub knows, or its host where that is asked.
func (a *app) reasonsOf(ctx context.Context, c *control.Client, v hub.AgentView) (string, error) {
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
			if r.Since != nil {
				part += " (" + clock(r.Since) + ")"
			}
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
			part += "; " + a.pasted(r.Fix)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "\n")
}

// statusOnHost says what else the host of an open agent may want to know.
func (a *app) statusOnHost(ctx context.Context, c *control.Client, v agentView) error {
	if v.State == commands.Queued {
		said, err := a.reasonsOf(ctx, c, v.AgentView) // as why says it
		if err == nil {
			fmt.Fprintf(a.err, "\n%s\n", printable(said))
		}
		return err
	}
	runs, err := a.hostRuns(ctx)
	switch {
	case err != nil:
		return err
	case !runs:
		fmt.Fprintf(a.err, "\nno spoke runs here: this is what the last one wrote; start it with: %s\n", a.line("spoke", "run"))
	}
	return nil
}
