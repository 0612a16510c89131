package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

func (a *app) laneCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "lane", Short: "Pause, drain and weigh the queues of the backlog",
		Long: `Pause, drain and weigh the queues of the backlog. A lane need not be made: it is
there when a task names it, active, with the weight 1.

paused: nothing is claimed. draining: what is there is claimed, new tasks are
refused. disabled: both.

Agents that hubs order stand in the lane default of the workspace main. Paused or
disabled it lets them wait. Draining holds none of them back: orders of hubs go on to
come in and to run.`,
	}
	a.inWorkspace(c)
	list := &cobra.Command{
		Use: "list", Short: "List lanes and what waits in them", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				list, err := control.Answer(c.API().ListLanesWithResponse(ctx, a.workspace))
				if err != nil {
					return err
				}
				return a.printLanes(each(list.Items, laneFrom))
			})
		},
	}
	c.AddCommand(list, a.laneVerb("pause", "paused", "Let nothing be claimed from a lane until it is resumed", "the build is broken"),
		a.laneVerb("resume", "active", "Let a lane work again", "the build works again"),
		a.laneVerb("drain", "draining", "Take no new tasks into a lane", "it is to be empty"),
		a.laneVerb("disable", "disabled", "Take no new tasks into a lane, and let nothing be claimed", "nobody needs it"),
		a.laneWeightCommand())
	return c
}

func (a *app) laneVerb(verb, state, short, because string) *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: verb + " NAME", Short: short, Args: cobra.ExactArgs(1),
		Example: "  spawnmesh lane " + verb + " nightly --reason '" + because + "'",
		RunE: func(c *cobra.Command, args []string) error {
			return a.changeLane(c.Context(), args[0], api.LaneChange{State: state, Reason: reason})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "record `WHY`")
	return c
}

func (a *app) laneWeightCommand() *cobra.Command {
	return &cobra.Command{
		Use: "weight NAME N", Short: "Set a lane's share: N claims for each one of a lane of weight 1", Args: cobra.ExactArgs(2),
		Example: "  spawnmesh lane weight urgent 10",
		RunE: func(c *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[1])
			if err != nil || n < 1 || n > 1000 {
				return misuse("weight %q is not a whole number from 1 to 1000", args[1])
			}
			return a.changeLane(c.Context(), args[0], api.LaneChange{Weight: &n})
		},
	}
}

func (a *app) changeLane(ctx context.Context, name string, change api.LaneChange) error {
	return a.asking(ctx, func(ctx context.Context, c *control.Client) error {
		v, err := control.Answer(c.API().ChangeLaneWithResponse(ctx, a.workspace, name, change))
		if err != nil {
			return err
		}
		l := laneFrom(v)
		if l.State == "draining" && l.Name == backlog.DefaultLane && a.workspace == backlog.MainWorkspace {
			fmt.Fprintf(a.err, "orders of hubs still come into this lane and run; to let them wait: %s\n", a.line("lane", "pause", l.Name, "--reason", "WHY"))
		}
		a.did("lane %s is %s, weight %d; see: %s", l.Name, l.State, l.Weight, a.line("lane", "list"))
		if a.forPeople() {
			_, err := fmt.Fprintf(a.out, "lane %s is %s, weight %d; %d queued, %d claimed\n", l.Name, l.State, l.Weight, l.Queued, l.Claimed)
			return err
		}
		return a.print(l, []any{l}, table{names: []string{l.Name}})
	})
}

func (a *app) printLanes(list []backlog.Lane) error {
	t := table{head: []string{"LANE", "STATE", "WEIGHT", "QUEUED", "CLAIMED", "WHY"}, wide: []string{"BY", "SINCE"},
		empty: "no lanes yet; the first task makes the lane " + backlog.DefaultLane}
	for _, l := range list {
		since := ""
		if !l.Since.IsZero() {
			since = clock(&l.Since)
		}
		t.names = append(t.names, l.Name)
		t.rows = append(t.rows, []string{l.Name, l.State, strconv.Itoa(l.Weight), strconv.FormatInt(l.Queued, 10), strconv.FormatInt(l.Claimed, 10),
			shorten(l.Reason, 50), l.Actor, since})
	}
	return printList(a, list, t)
}
