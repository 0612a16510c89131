package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

func (a *app) connectionResyncCommand() *cobra.Command {
	return &cobra.Command{
		Use: "resync NAME", Short: "Compare what both sides have sent and stored, and settle it", Args: cobra.ExactArgs(1),
		Long: `Compare what both sides of a connection have sent and stored, and settle it. The link
is ended, and the next one begins with the comparison, as every link does.

Nothing is lost: what the other side has is not sent again; what it never saw, or has
no more, is sent again, under new numbers where it has other messages under the old
ones. Running agents go on. Where this side used numbers again after a restore, the
gap is in the audit, with code RESYNC.

It is needed where a connection was suspended because numbers were used twice: that
is forgotten, and the connection resumed. If another instance runs with the same key,
stop that one first.`,
		Example: "  spawnmesh connections resync attic",
		RunE:    func(c *cobra.Command, args []string) error { return a.resync(c.Context(), args[0]) },
	}
}

func (a *app) resync(ctx context.Context, name string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	v, err := control.Read[hub.Settlement](c.API().ResyncConnection(ctx, name))
	if err != nil {
		return err
	}
	a.did("both sides of %s agree; see: %s", v.Name, a.line("connections", "show", v.Name))
	if !a.forPeople() {
		return a.print(v, []any{v}, table{names: []string{v.Name}})
	}
	var list pairs
	list.add("compared", fmt.Sprintf("messages to %s up to %d, from %s up to %d", v.Name, v.Ours, v.Name, v.Theirs))
	list.add("taken over", fmt.Sprintf("%d messages that %s has already, %d orders or outcomes that only %s knew", v.Confirmed, v.Name, v.Learnt, v.Name))
	again := fmt.Sprintf("%d messages under their numbers, %d under new ones", v.Reopened, v.Renumbered)
	if v.Base > 0 {
		again += fmt.Sprintf(" after %d", v.Base)
	}
	list.add("sent again", again)
	state := "both sides agree"
	if v.Resumed {
		state += "; the connection is active again"
	}
	list.add("result", state)
	return a.align(list, 0)
}
