package main

import (
	"context"
	"fmt"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/instance"
	"github.com/spawnmesh/spawnmesh/store"
)

// A schedulesFound is what the database tells of schedules, and of what they depend on.
type schedulesFound struct {
	schedules   []store.Schedule
	connections []store.Connection
	frozen      store.Freezes
	last        map[string]store.Stand // by id: how the last agents of the schedules stand
}

func findSchedules(ctx context.Context, in *instance.Instance) (f schedulesFound, err error) {
	if f.schedules, err = in.DB.Schedules(ctx); err != nil || len(f.schedules) == 0 {
		return f, err
	}
	if f.connections, err = in.DB.Connections(ctx); err != nil {
		return f, err
	}
	if f.frozen, err = in.DB.Freezes(ctx); err != nil {
		return f, err
	}
	var tasks []string
	for _, s := range f.schedules {
		if s.LastTask != "" {
			tasks = append(tasks, s.LastTask)
		}
	}
	list, err := in.DB.StandOf(ctx, tasks)
	f.last = map[string]store.Stand{}
	for _, m := range list {
		f.last[m.Task] = m
	}
	return f, err
}

// unsuccessful reports whether the last agent of a schedule has ended without success.
func (f schedulesFound) unsuccessful(s store.Schedule) bool {
	m, known := f.last[s.LastTask]
	return known && m.State.Terminal() && m.State != commands.Completed
}

// checkSchedules says which schedules order nothing: those of which nothing can come as their connection has ended, and those that
// are refused each time; of which the last time was refused, and the next would not be; and of which the last agent has ended
// without success. One that is paused is meant to order nothing.
func (a *app) checkSchedules(f schedulesFound) (checks []control.Check) {
	var stuck, refused, over, failing []store.Schedule
	for _, s := range f.schedules {
		switch {
		case s.State != store.ScheduleActive:
		case hub.OrdersNothing(s, f.connections) != "":
			stuck = append(stuck, s)
		case hub.RefusedNow(s, f.connections, f.frozen):
			refused = append(refused, s)
		case s.Outcome.Is == store.FireRefused:
			over = append(over, s)
		case f.unsuccessful(s):
			failing = append(failing, s)
		}
	}
	all := len(f.schedules)
	if len(stuck) > 0 {
		checks = append(checks, control.Check{Name: "schedules", Problem: fmt.Sprintf("%d of %d can order nothing: %s, as %s; let that spoke join again, or delete what is not needed any more; see: %s", len(stuck), all, stuck[0].Name,
			commands.OneLine(hub.OrdersNothing(stuck[0], f.connections)), a.line("schedule", "list"))})
	}
	if len(refused) > 0 {
		first := refused[0]
		checks = append(checks, control.Check{Name: "refused schedules", Problem: fmt.Sprintf("%d of %d order nothing: %s is refused%s (%s: %s); see: %s", len(refused), all, first.Name, span(first.Outcome.Since, nil),
			first.Outcome.Code, commands.OneLine(first.Outcome.Why), a.line("schedule", "list"))})
	}
	if len(over) > 0 {
		first := over[0]
		checks = append(checks, note("refused schedules", fmt.Sprintf("the last time of %d of %d was refused, and what refused it is over: %s (%s: %s); next try at %s; now: %s", len(over), all, first.Name,
			first.Outcome.Code, commands.OneLine(first.Outcome.Why), clock(first.Next), a.line("schedule", "run", first.Name))))
	}
	if len(failing) > 0 {
		first := failing[0]
		checks = append(checks, note("failing schedules", fmt.Sprintf("the last agent of %d of %d ended without success: that of %s is %s; see: %s", len(failing), all, first.Name,
			hub.Stands(f.last[first.LastTask]), a.line("schedule", "fires", first.Name))))
	}
	return checks
}
