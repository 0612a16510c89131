package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
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
	ask := api.KillSelection{IDs: []string{}, Spoke: f.spoke, Labels: labels, All: f.all, Reason: reason, GraceMS: grace.Milliseconds()}
	alone, err := spokeAlone(ctx, c)
	switch {
	case err != nil:
		return err
	case alone && f.all:
		return a.killHosted(ctx, c, f, reason, grace)
	case alone: // it says whom to ask
		_, err := killAsked(ctx, c, ask)
		return err
	}
	if f.spoke != "" { // a name that is mistyped has no agents
		v, err := connectionNamed(ctx, c, f.spoke)
		if err != nil {
			return err
		}
		f.spoke, ask.Spoke = v.Name, v.Name
	}
	k, err := a.killable(ctx, c, f)
	if err != nil {
		return err
	}
	if k.hosted > 0 && f.all {
		fmt.Fprintf(a.err, "%s; kill each by its id; see: %s\n", goOn(k.hosted, "that other hubs ordered here"), a.line("agents", "--open"))
	}
	return a.killMeant(ctx, f, k, func(sum *hub.KillSummary) error { return killShown(ctx, c, ask, k.ids, sum) })
}

// killShown asks for the end of those that were shown, so many at a time as one request names.
func killShown(ctx context.Context, c *control.Client, ask api.KillSelection, ids []string, sum *hub.KillSummary) error {
	for ask.IDs = range slices.Chunk(ids, hub.MostKilled) {
		some, err := killAsked(ctx, c, ask)
		if err != nil && sum.Killed+sum.EndedAlready > 0 {
			return fmt.Errorf("the kill of %s is ordered, and then: %w", numberOf(sum.Killed, "agent"), err)
		}
		if err != nil {
			return err
		}
		sum.Killed, sum.EndedAlready, sum.Refused = sum.Killed+some.Killed, sum.EndedAlready+some.EndedAlready, append(sum.Refused, some.Refused...)
		sum.Later = some.Later // those of the next request are among those of this one
	}
	return nil
}

func killAsked(ctx context.Context, c *control.Client, ask api.KillSelection) (hub.KillSummary, error) {
	return control.Read[hub.KillSummary](c.API().KillTasks(ctx, ask))
}

// killMeant shows what will be killed, asks whether it is meant, and lets order do it.
func (a *app) killMeant(ctx context.Context, f killFlags, k killable, order func(sum *hub.KillSummary) error) error {
	if k.ordered > 0 {
		fmt.Fprintf(a.err, "the end of %s is ordered already\n", numberOf(k.ordered, "agent"))
	}
	sum := hub.KillSummary{Refused: []hub.KillRefused{}}
	switch total := k.total(); {
	case total > 0:
		fmt.Fprintln(a.err, printable(fmt.Sprintf("%s will be killed: %s", numberOf(total, "agent"), onSpokes(k.where))))
		if !f.yes {
			if err := a.meant(ctx, "kill them?", misuse("nothing was killed: %s", numberOf(total, "agent")+" would be").Hinting("add --yes if you mean it")); err != nil {
				return err
			}
		}
		if err := order(&sum); err != nil {
			return err
		}
	case a.forPeople():
		fmt.Fprintln(a.err, k.nothing(f))
		return nil
	}
	return a.printKilled(sum)
}

// A killable says which open agents are selected.
type killable struct {
	where   map[string]int // by the spoke where they run, or the hub that ordered them here
	ids     []string
	ordered int // their end is ordered already
	hosted  int // hubs ordered them here, and they are not selected
}

func (k killable) total() int { return len(k.ids) }

// nothing says that there is nothing to kill.
func (k killable) nothing(f killFlags) string {
	switch {
	case !f.all:
		return "no open agents are selected that are to be killed"
	case k.ordered > 0 || k.hosted > 0:
		return "there are no others to kill"
	}
	return "no agents to kill"
}

// killable finds the open agents that are selected on a hub.
func (a *app) killable(ctx context.Context, c *control.Client, f killFlags) (killable, error) {
	k := killable{where: map[string]int{}}
	list, _, err := agentFlags{spoke: f.spoke, labels: f.labels, open: true, limit: math.MaxInt}.list(ctx, c)
	for _, v := range list {
		switch {
		case v.Hub != "":
			k.hosted++
		case v.Kill != nil && !onlyCancelled(v.Kill):
			k.ordered++
		default:
			k.add(v.Spoke, v.Task)
		}
	}
	return k, err
}

// onlyCancelled reports whether an agent whose end is ordered was cancelled and not killed: a kill wins over a cancel.
func onlyCancelled(kill json.RawMessage) bool {
	var k commands.Kill
	return json.Unmarshal(kill, &k) == nil && k.Cancel != ""
}

func (k *killable) add(where, id string) {
	k.where[where]++
	k.ids = append(k.ids, id)
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

// goOn says what a kill spares.
func goOn(n int, which string) string {
	they := "they go on"
	if n == 1 {
		they = "it goes on"
	}
	return numberOf(n, "agent") + " " + which + "; " + they
}

// printKilled says what became of all. The exit code is the highest of what was refused.
func (a *app) printKilled(sum hub.KillSummary) (failed error) {
	if sum.Later > 0 && a.forPeople() {
		fmt.Fprintln(a.err, goOn(sum.Later, "came after you looked"))
	}
	a.did("the kill of %s is ordered; see: %s", numberOf(sum.Killed, "agent"), a.line("agents"))
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
