package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

// changeSchedule changes one, and says what has become of it.
func (a *app) changeSchedule(c *cobra.Command, name string, v api.ScheduleChange, what string) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	s, err := control.Answer(client.API().ChangeScheduleWithResponse(c.Context(), name, v))
	if err != nil {
		return err
	}
	a.did("the schedule %s %s; see: %s", s.Name, what, a.line("schedule", "show", s.Name))
	if s.OrdersNothing != "" {
		fmt.Fprintf(a.err, "note: it %s: %s\n", ordersNothing, printable(commands.OneLine(s.OrdersNothing)))
	}
	return a.sayDue(s, what)
}

func (a *app) scheduleChangeCommand() *cobra.Command {
	var v api.ScheduleChange
	var overlap string
	c := &cobra.Command{
		Use: "change NAME", Short: "Change when a schedule is due", Args: cobra.ExactArgs(1),
		Long: `Change when a schedule is due, and what becomes of it while its last agent runs. To
change what it orders, delete it and create another one.`,
		Example: "  spawnmesh schedule change nightly --cron '0 4 * * *' --reason 'busy before'",
		RunE: func(c *cobra.Command, args []string) error {
			if v.Cron == "" && v.Zone == "" && overlap == "" {
				return misuse("nothing is to be changed").Hinting("give --cron, --zone or --overlap")
			}
			v.Overlap = api.Overlap(overlap)
			return a.changeSchedule(c, args[0], v, "was changed")
		},
	}
	fl := c.Flags()
	fl.StringVar(&v.Cron, "cron", "", cronForm)
	fl.StringVar(&v.Zone, "zone", "", "by the clock of `ZONE`")
	fl.StringVar(&overlap, "overlap", "", "`WHAT` becomes of it while its last agent has not ended: skip, queue or replace")
	fl.StringVar(&v.Reason, "reason", "", "record `WHY`")
	return c
}

// pausedNow is what is said of a schedule that is paused.
const pausedNow = "is paused"

func (a *app) schedulePauseCommand() *cobra.Command {
	v := api.ScheduleChange{State: api.ScheduleStatePaused}
	c := &cobra.Command{
		Use: "pause NAME", Short: "Let a schedule order nothing until it is resumed", Args: cobra.ExactArgs(1),
		Example: "  spawnmesh schedule pause nightly --reason 'the disk is being replaced'",
		RunE: func(c *cobra.Command, args []string) error {
			if strings.TrimSpace(v.Reason) == "" {
				return misuse("to pause a schedule needs a reason").Hinting("add --reason \"why\"; it is shown with the schedule")
			}
			return a.changeSchedule(c, args[0], v, pausedNow)
		},
	}
	c.Flags().StringVar(&v.Reason, "reason", "", "record `WHY` (required)")
	return c
}

func (a *app) scheduleResumeCommand() *cobra.Command {
	v := api.ScheduleChange{State: api.ScheduleStateActive}
	all := false
	c := &cobra.Command{
		Use: "resume NAME", Short: "Let a paused schedule go on", Args: cobra.MaximumNArgs(1),
		Long: `Let a paused schedule go on. What was due while it was paused is not ordered.

A hub that was restored from a backup has paused its schedules (restored): with --all
all of these go on. What somebody has paused stays so.`,
		Example: "  spawnmesh schedule resume nightly\n  spawnmesh schedule resume --all",
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case all == (len(args) == 1):
				return misuse("resume takes the name of a schedule, or --all").Hinting("see").Running("schedule", "list")
			case all:
				return a.resumeRestored(c, v)
			}
			return a.changeSchedule(c, args[0], v, "goes on")
		},
	}
	c.Flags().BoolVar(&all, "all", false, "all that were paused because the hub was restored from a backup")
	c.Flags().StringVar(&v.Reason, "reason", "", "record `WHY`")
	return c
}

// resumeRestored lets those go on that a restore has paused.
func (a *app) resumeRestored(c *cobra.Command, v api.ScheduleChange) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	list, err := control.Answer(client.API().ListSchedulesWithResponse(c.Context()))
	if err != nil {
		return err
	}
	return letGoOn(a, list.Items, held[api.Schedule]{
		is: func(s api.Schedule) bool { return s.Restored },
		goOn: func(s api.Schedule) (api.Schedule, error) {
			return control.Answer(client.API().ChangeScheduleWithResponse(c.Context(), s.Name, v))
		},
		list: "schedule", did: "schedules go on", none: "no schedule is paused because of a restore", show: a.printSchedules,
	})
}

func (a *app) scheduleRunCommand() *cobra.Command {
	return &cobra.Command{
		Use: "run NAME", Short: "Spawn the agent of a schedule now", Args: cobra.ExactArgs(1),
		Long: `Spawn the agent of a schedule now, whether that is due or paused, and whatever runs
of it. When it is due next stays as it is.`,
		Example: "  spawnmesh schedule run nightly",
		RunE:    func(c *cobra.Command, args []string) error { return a.runSchedule(c.Context(), args[0]) },
	}
}

func (a *app) runSchedule(ctx context.Context, name string) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	v, err := control.Answer(client.API().RunScheduleWithResponse(ctx, name, &api.RunScheduleParams{IdempotencyKey: uuid.NewString()}))
	if err != nil {
		return err
	}
	a.did("agent %s was ordered on %s; see: %s", v.ShortID, v.Spoke, a.line("status", v.ShortID))
	if a.forPeople() {
		_, err := fmt.Fprintln(a.out, v.ShortID)
		return err
	}
	return a.print(v, []any{v}, table{names: []string{v.ID}})
}

func (a *app) scheduleFiresCommand() *cobra.Command {
	limit := 20
	c := &cobra.Command{
		Use: "fires NAME", Short: "List what became of a schedule each time", Args: cobra.ExactArgs(1),
		Long: `List what became of a schedule each time that it was due, or that somebody had it
run, the newest first. MISSED is how many more times it was due by then, as when the
hub was down. They are the same agent.`,
		RunE: func(c *cobra.Command, args []string) error {
			if limit < 1 {
				return misuse("--limit is 1 or more")
			}
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				list, more, err := paged(limit, false, func(cursor string, most int) (control.Items[api.Fire], error) {
					page, err := control.Answer(c.API().ListFiresWithResponse(ctx, args[0], &api.ListFiresParams{Cursor: cursor, Limit: &most}))
					return control.Items[api.Fire]{Items: page.Items, Next: page.Next}, err
				})
				if err == nil {
					err = a.printFires(list)
				}
				a.sayMore(err == nil && more, "times", "--limit N")
				return err
			})
		},
	}
	c.Flags().IntVar(&limit, "limit", limit, "at most `N`, the newest")
	return c
}

func (a *app) printFires(list []api.Fire) error {
	t := table{head: []string{"DUE", "OUTCOME", "AGENT", "MISSED", "WHY"}, wide: []string{"AT", "BY"}, empty: "it was not due yet"}
	for _, f := range list {
		due, agent := localTime(f.DueAt), "-"
		if f.DueAt.IsZero() {
			due = "when asked"
		}
		if f.Task != "" {
			agent = commands.ShortID(f.Task)
		}
		why := f.Why
		if f.Code != "" {
			why = f.Code + ": " + f.Why
		}
		t.names = append(t.names, f.Task)
		t.rows = append(t.rows, []string{due, fireWords(f.Outcome, f.TaskStands), agent, strconv.Itoa(f.Missed), why, localTime(f.At), f.Actor})
	}
	return printList(a, list, t)
}

func (a *app) scheduleDeleteCommand() *cobra.Command {
	var yes bool
	var reason string
	c := &cobra.Command{
		Use: "delete NAME", Short: "Forget a schedule", Args: cobra.ExactArgs(1),
		Long:    "Forget a schedule, and what became of it. The agents that it has ordered go on.",
		Example: "  spawnmesh schedule delete nightly --yes",
		RunE: func(c *cobra.Command, args []string) error {
			const lost = "it orders nothing more, and what became of it is forgotten"
			if !yes {
				no := misuse("the schedule %s was not deleted: %s", args[0], lost).Hinting("add --yes if you mean it")
				if err := a.meant(c.Context(), lost+"; delete the schedule "+printable(args[0])+"?", no); err != nil {
					return err
				}
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			v, err := control.Answer(client.API().DeleteScheduleWithResponse(c.Context(), args[0], &api.DeleteScheduleParams{Reason: reason}))
			if err != nil {
				return err
			}
			a.did("the schedule %s is deleted", v.Name)
			if a.forPeople() {
				_, err := fmt.Fprintf(a.out, "schedule %s is deleted\n", v.Name)
				return err
			}
			return a.print(v, []any{v}, table{names: []string{v.Name}})
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask whether it is meant")
	c.Flags().StringVar(&reason, "reason", "", "record `WHY`")
	return c
}
