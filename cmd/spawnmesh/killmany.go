package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

// killFlags say which agents are to end, where no id does.
type killFlags struct {
	spoke    string
	labels   []string
	all, yes bool
}

// selects reports whether agents are named by what they are.
func (f killFlags) selects() bool { return f.spoke != "" || f.all || len(f.labels) > 0 }

// check refuses what names agents in two ways, or in none.
func (f killFlags) check(ids []string) error {
	switch {
	case f.selects() && len(ids) > 0:
		return misuse("ids name agents, and so do --spoke, --all and -l").Hinting("give one or the other")
	case f.all && (f.spoke != "" || len(f.labels) > 0):
		return misuse("--all is all agents, and --spoke and -l select some").Hinting("give one or the other")
	case !f.selects() && len(ids) == 0:
		return misuse("no agent is named").Hinting("name some by their ids, or by --spoke NAME, -l SELECTOR or --all")
	case f.yes && len(ids) > 0:
		return misuse("--yes answers what is asked of --spoke, --all and -l; nothing is asked where ids name the agents")
	}
	return nil
}

// killSelected shows how many agents are selected, asks, and orders their end.
func (a *app) killSelected(ctx context.Context, f killFlags, reason string, grace time.Duration) error {
	labels, err := selector(f.labels)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	if f.spoke != "" { // a name that is mistyped has no agents
		var v connectionView
		if err := c.Do(ctx, "GET", "/api/v1/connections/"+url.PathEscape(f.spoke), nil, &v); err != nil {
			return err
		}
		f.spoke = v.Name
	}
	where, ordered, err := a.killable(ctx, c, f)
	if err != nil {
		return err
	}
	total := 0
	for _, n := range where {
		total += n
	}
	if ordered > 0 {
		fmt.Fprintf(a.err, "the end of %s is ordered already\n", numberOf(ordered, "agent"))
	}
	if total > 0 {
		shown := fmt.Sprintf("%s will be killed: %s", numberOf(total, "agent"), onSpokes(where))
		fmt.Fprintln(a.err, printable(shown))
		if !f.yes && !a.confirm("kill them?") {
			return misuse("nothing was killed: %s", numberOf(total, "agent")+" would be").Hinting("add --yes if you mean it")
		}
	} else if a.forPeople() {
		fmt.Fprintln(a.err, "no agents to kill")
		return nil
	}
	sum := hub.KillSummary{Refused: []hub.KillRefused{}}
	if total > 0 {
		ask := api.KillSelection{Spoke: f.spoke, Labels: labels, All: f.all, Reason: reason, GraceMS: grace.Milliseconds(), Expected: total}
		if err := c.Do(ctx, "POST", "/api/v1/tasks/kill", ask, &sum); err != nil {
			return err
		}
	}
	return a.printKilled(sum)
}

// killable counts by spoke the open agents that are selected, and those whose end is ordered already.
func (a *app) killable(ctx context.Context, c *control.Client, f killFlags) (where map[string]int, ordered int, err error) {
	where = map[string]int{}
	list, err := agentFlags{spoke: f.spoke, labels: f.labels, open: true, limit: math.MaxInt}.list(ctx, c)
	for _, v := range list {
		switch {
		case v.Hub != "": // it runs here, and another hub has ordered it
		case v.Kill != nil:
			ordered++
		default:
			where[v.Spoke]++
		}
	}
	return where, ordered, err
}

func onSpokes(where map[string]int) string {
	var list []string
	for _, spoke := range slices.Sorted(maps.Keys(where)) {
		list = append(list, fmt.Sprintf("%d on %s", where[spoke], spoke))
	}
	return strings.Join(list, ", ")
}

// numberOf is a number of things as people say it.
func numberOf(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// printKilled says what became of all. The exit code is the highest of what was refused.
func (a *app) printKilled(sum hub.KillSummary) (failed error) {
	worst := 0
	for _, r := range sum.Refused {
		worst = max(worst, exitOfCode(r.Code))
		if a.forPeople() {
			a.printError(commands.Refuse(r.Code, "agent %s: %s", commands.ShortID(r.ID), r.Detail))
		}
	}
	if worst > 0 {
		failed = exitCode(worst)
	}
	if !a.forPeople() {
		if err := a.print(sum, []any{sum}, table{}); err != nil {
			return err
		}
		return failed
	}
	fmt.Fprintf(a.out, "the kill of %s is ordered", numberOf(sum.Killed, "agent"))
	if sum.EndedAlready > 0 {
		fmt.Fprintf(a.out, "; %d had ended meanwhile", sum.EndedAlready)
	}
	if len(sum.Refused) > 0 {
		fmt.Fprintf(a.out, "; %d were refused", len(sum.Refused))
	}
	fmt.Fprintln(a.out)
	return failed
}
