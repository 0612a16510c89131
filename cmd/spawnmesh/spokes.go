package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store"
)

// A spokeView is a spoke to one who gives it work.
type spokeView struct {
	connectionView
	TakesWork bool `json:"takes_work"` // nothing keeps it from that
}

func spokeViewOf(v connectionView) spokeView { return spokeView{v, len(v.Reasons) == 0} }

func (a *app) spokesCommand() *cobra.Command {
	c := a.peerListCommand(&peerList{command: "spokes", authority: store.Commands, print: a.printSpokes})
	c.Use, c.SuggestFor, c.Short = "spokes", []string{"nodes", "hosts", "workers"}, "List spokes, and say which of them take work"
	c.Long = `List the spokes of this hub, and say which of them take work.

VERDICT is "takes work", or what first keeps the spoke from it; why NAME says all of
it, and what to do. SLOTS is how many agents run there at once. RUNNING and QUEUED
are from the last heartbeat of the spoke, which SEEN tells, and - when that is old;
RUNNING counts agents of this hub that have started since, too.
-o wide has what the spoke says of itself, too. connections shows the same peers as
connections: keys, numbers, who may ask whom.`
	c.Example = `  spawnmesh spokes
  spawnmesh spokes -w
  spawnmesh spokes show attic
  spawnmesh why attic`
	c.AddCommand(&cobra.Command{
		Use: "show NAME", Short: "Show one spoke", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.showSpoke(c.Context(), args[0]) },
	})
	return c
}

func (a *app) printSpokes(views []connectionView) error {
	t := table{head: []string{"NAME", "STATE", "SLOTS", "RUNNING", "QUEUED", "SEEN", "VERDICT"}, wide: []string{"LINK", "CAPABILITIES", "POLICY", "ISOLATION", "VERSION", "CLOCK"},
		drops: []string{"SEEN", "STATE"}, empty: "no spokes; invite one: " + a.line("invite", "--name", "NAME")}
	if dir, err := a.dir(); err == nil && !isHub(dir) {
		t.empty = "no spokes: this instance is a spoke; its hub lists its spokes and invites more"
	}
	list := make([]spokeView, 0, len(views))
	for _, v := range views {
		list = append(list, spokeViewOf(v))
	}
	if err := printList(a, list, a.fillPeers(t, views)); err != nil || !a.forPeople() {
		return err
	}
	if slices.ContainsFunc(list, func(v spokeView) bool { return !v.TakesWork }) {
		fmt.Fprintf(a.out, "every reason, and what to do: %s\n", a.line("why", "NAME"))
	}
	return nil
}

func (a *app) showSpoke(ctx context.Context, name string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	v, err := a.spoke(ctx, c, name)
	switch {
	case err != nil:
		return err
	case !a.forPeople():
		return a.print(v, []any{v}, table{names: []string{v.Name}})
	}
	var list pairs
	list.add("name", v.Name)
	list.add("state", stateOf(v.connectionView))
	list.add("verdict", a.verdictOn(v.connectionView))
	list.add("link", a.linkOf(v.connectionView))
	list = append(list, a.heardOf(v.connectionView)...)
	list.add("connection", v.ID)
	if err := a.align(list, 0); err != nil || v.TakesWork {
		return err
	}
	_, err = fmt.Fprintf(a.err, "\nevery reason, and what to do: %s\n", a.line("why", v.Name))
	return err
}

// spoke asks a running hub for one of its spokes.
func (a *app) spoke(ctx context.Context, c *control.Client, name string) (spokeView, error) {
	v, err := connectionNamed(ctx, c, name)
	switch {
	case commands.CodeOf(err) == commands.NotFound:
		err = commands.Refuse(commands.NotFound, "no spoke %q", commands.Clip(name)).Hinting("see").Running("spokes")
	case err == nil && !isSpoke(v):
		err = commands.Refuse(commands.NotFound, "%s is a hub that this instance obeys, not a spoke of it", v.Name).Hinting("see").Running("connections", "show", v.Name)
	}
	return spokeViewOf(v), err
}
