package main

import (
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

func (a *app) printBudgets(list []backlog.Budget) error {
	t := table{head: []string{"BUDGET", "SCOPE", "LEFT", "USED", "RESERVED", "HARD", "WHAT"}, wide: []string{"SOFT", "ON HARD", "WINDOW"},
		empty: "no budgets yet; create one: " + a.self() + " budget create NAME --dimension usd --hard 100"}
	for _, g := range list {
		soft := ""
		if g.Soft != nil {
			soft = g.Soft.String()
		}
		t.names = append(t.names, g.Name)
		t.rows = append(t.rows, []string{g.Name, scopeOf(g.Scope, g.Target), g.Left.String(), g.Used.String(), g.Reserved.String(), g.Hard.String(), g.Dimension,
			soft, onHard(g), windowOf(g)})
	}
	return printList(a, list, t)
}

func onHard(g backlog.Budget) string {
	if g.DowngradeTo != "" {
		return g.OnHard + " to " + g.DowngradeTo
	}
	return g.OnHard
}

func (a *app) printBudget(g backlog.Budget) error {
	if !a.forPeople() {
		return a.print(g, []any{g}, table{names: []string{g.Name}})
	}
	var list pairs
	list.add("budget", g.Name)
	list.add("scope", scopeOf(g.Scope, g.Target))
	list.add("dimension", g.Dimension)
	list.add("left", g.Left.String())
	list.add("hard limit", g.Hard.String())
	list.add("on hard", onHard(g))
	if g.Soft != nil {
		list.add("soft limit", g.Soft.String())
		list.add("soft since", clock(g.SoftSince))
	}
	list.add("used", g.Used.String())
	list.add("reserved", g.Reserved.String())
	if g.Rolling > 0 {
		list.add("counts", "the last "+commands.Lasting(time.Duration(g.Rolling)))
	}
	list.add("resets", clock(g.ResetsAt))
	if g.Every > 0 {
		list.add("and then", "every "+commands.Lasting(time.Duration(g.Every)))
	}
	return a.align(list, 0)
}
