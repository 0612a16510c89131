package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/hub/cron"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store"
)

func (a *app) scheduleCommand() *cobra.Command {
	c := &cobra.Command{Use: "schedule", Short: "Spawn an agent again and again, whenever a clock says so"}
	list := &cobra.Command{
		Use: "list", Short: "List schedules, and when they are due next", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				list, err := control.Answer(c.API().ListSchedulesWithResponse(ctx))
				if err != nil {
					return err
				}
				return a.printSchedules(list.Items)
			})
		},
	}
	show := a.limitCommand("show NAME", "Show a schedule, and when it is due next", func(ctx context.Context, c *api.ClientWithResponses, name string) error {
		v, err := control.Answer(c.GetScheduleWithResponse(ctx, name))
		if err != nil {
			return err
		}
		return a.printSchedule(v)
	})
	c.AddCommand(a.scheduleCreateCommand(), list, show, a.scheduleChangeCommand(), a.schedulePauseCommand(), a.scheduleResumeCommand(), a.scheduleRunCommand(), a.scheduleFiresCommand(), a.scheduleDeleteCommand())
	return c
}

func (a *app) printSchedules(list []api.Schedule) error {
	t := table{head: []string{"NAME", "STATE", "CRON", "ZONE", "NEXT", "LAST", "OUTCOME"}, wide: []string{"OVERLAP", "SPOKE", "BY", "AGENT", "PAUSED", "PAUSED BY"},
		empty: "no schedules yet; create one: " + a.self() + " schedule create NAME --cron '30 2 * * *' -- CMD"}
	for _, v := range list {
		next, last := time.Time{}, ""
		if len(v.Next) > 0 {
			next = v.Next[0]
		}
		if v.LastTask != "" {
			last = commands.ShortID(v.LastTask)
		}
		t.names = append(t.names, v.Name)
		t.rows = append(t.rows, []string{v.Name, standsAs(v), v.Cron, v.Zone, byClock(next, v.Zone), byClock(v.LastFiredAt, v.Zone), outcomeOf(v), string(v.Overlap), spokeOf(v), v.CreatedBy, cmp.Or(last, "-"), localTime(v.PausedAt), cmp.Or(v.PausedBy, "-")})
	}
	return printList(a, list, t)
}

// ordersNothing is how a schedule stands that is active, and of which nothing can come.
const ordersNothing = "orders nothing"

// standsAs is how a schedule stands, in a word or two.
func standsAs(v api.Schedule) string {
	if v.OrdersNothing != "" {
		return ordersNothing
	}
	return string(v.State)
}

// byClock is a time by the clock of a schedule, which is named.
func byClock(at time.Time, zone string) string {
	where, err := cron.Zone(zone)
	if err != nil {
		where = time.Local
	}
	if at.IsZero() {
		return "-"
	}
	return at.In(where).Format("2006-01-02 15:04 MST")
}

// outcomeOf says what became of a schedule last: how the agent stands that was ordered, and of refusals since when there was
// nothing else.
func outcomeOf(v api.Schedule) string {
	if v.Outcome != store.FireRefused {
		return cmp.Or(fireWords(v.Outcome, v.LastTaskStands), "-")
	}
	return fmt.Sprintf("refused: %s, since %s", v.OutcomeCode, byClock(v.OutcomeSince, v.Zone))
}

// fireWords is an outcome, with how the agent stands where one was ordered.
func fireWords(outcome, stands string) string {
	if outcome != store.FireOrdered || stands == "" {
		return outcome
	}
	return outcome + ", " + stands
}

// spokeOf says where a schedule has its agents run.
func spokeOf(v api.Schedule) string {
	switch {
	case v.Any:
		return "any"
	case v.Spoke == "":
		return "the only one"
	}
	return v.Spoke
}

// printSchedule shows one schedule. When it is due next is shown by its clock, and by the one here.
func (a *app) printSchedule(v api.Schedule) error {
	if !a.forPeople() {
		return a.print(v, []any{v}, table{names: []string{v.Name}})
	}
	var list pairs
	list.add("schedule", v.Name+" ("+v.ID+")")
	list.add("state", strings.TrimSuffix(string(v.State)+": "+v.Why, ": "))
	list.add(ordersNothing, v.OrdersNothing)
	if v.PausedBy != "" {
		list.add("paused", localTime(v.PausedAt)+" by "+v.PausedBy)
	}
	list.add("due", v.Cron+" in "+v.Zone)
	list.add("overlap", overlapWords[v.Overlap])
	list.add("title", v.Title)
	list.add("spoke", spokeOf(v))
	if v.Spec != nil {
		list.add("command", commandLine(v.Spec))
		list = append(list, askedOf(v.Spec)...)
		list.add("retries", retriesOf(v.Spec))
	}
	list.add("labels", commands.Labels(v.Labels).Text())
	if v.LastTask != "" {
		list.add("last", commands.ShortID(v.LastTask)+" at "+localTime(v.LastFiredAt))
	}
	if v.Outcome != "" {
		list.add("outcome", strings.TrimSuffix(outcomeOf(v)+": "+v.OutcomeWhy, ": "))
	}
	list.add("created", localTime(v.CreatedAt)+" by "+v.CreatedBy)
	for _, at := range v.Next {
		list.add("next", inZone(at, v.Zone))
	}
	if err := a.align(list, 0); err != nil || !v.Restored {
		return err
	}
	fmt.Fprintf(a.err, "it is paused since this hub was restored from a backup; to let it go on: %s\n", a.line("schedule", "resume", v.Name))
	return nil
}

var overlapWords = map[api.Overlap]string{
	api.Skip:    "skip: nothing is ordered while the last one has not ended",
	api.Queue:   "queue: it is ordered all the same while the last one has not ended",
	api.Replace: "replace: the last one is killed where it has not ended",
}

// inZone is a time by the clock of a zone, and by the one here where that shows another one.
func inZone(at time.Time, zone string) string {
	const form = "Mon 2006-01-02 15:04 MST"
	here := at.Local().Format(form)
	where, err := cron.Zone(zone)
	if err != nil {
		return here
	}
	there := at.In(where).Format(form)
	if there == here {
		return here
	}
	return fmt.Sprintf("%s (here %s)", there, here)
}

// sayDue says when a schedule is due next.
func (a *app) sayDue(v api.Schedule, what string) error {
	if !a.forPeople() {
		return a.printSchedule(v)
	}
	if v.Already {
		_, err := fmt.Fprintf(a.out, "schedule %s %s%s\n", v.Name, what, already(v.PausedBy, v.PausedAt, v.Why))
		return err
	}
	if len(v.Next) == 0 && what == pausedNow {
		_, err := fmt.Fprintf(a.out, "schedule %s %s\n", v.Name, what)
		return err
	}
	if len(v.Next) == 0 {
		_, err := fmt.Fprintf(a.out, "schedule %s %s; it is paused\n", v.Name, what)
		return err
	}
	_, err := fmt.Fprintf(a.out, "schedule %s %s; due next: %s\n", v.Name, what, inZone(v.Next[0], v.Zone))
	return err
}
