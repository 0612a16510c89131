package main

import (
	"context"
	"fmt"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store"
)

// How many agents are looked at for what a spoke has refused, and how many refusals are shown.
const (
	lookedAt     = 200
	mostRefusals = 3
)

// A spokeWhy is what keeps a spoke from taking work, and what its policy has refused lately.
type spokeWhy struct {
	spokeView
	Refusals []store.Refusal `json:"refusals"` // by the policy in force, newest first
}

// whySpoke says what keeps a spoke from taking work.
func (a *app) whySpoke(ctx context.Context, c *control.Client, v spokeView) error {
	if !isSpoke(v.connectionView) {
		return a.whyHub(v.connectionView)
	}
	w := spokeWhy{v, []store.Refusal{}}
	most := lookedAt
	agents, err := control.Read[control.Items[store.Mirror]](c.API().ListTasks(ctx, &api.ListTasksParams{Limit: &most}))
	if err != nil && commands.CodeOf(err) != commands.Forbidden { // who may not see agents sees the spoke
		return err
	}
	for _, m := range agents.Items {
		for _, r := range m.Refusals {
			if r.Conn == v.ID && r.Policy == v.Policy && len(w.Refusals) < mostRefusals {
				w.Refusals = append(w.Refusals, r)
			}
		}
	}
	if !a.forPeople() {
		return a.print(w, []any{w}, table{names: []string{v.Name}})
	}
	name := printable(v.Name)
	if v.TakesWork {
		fmt.Fprintf(a.out, "%s takes work; nothing keeps it from that (%d of %d slots in use, heard %s)\n", name, v.Running, v.Slots, longAgo(*v.LastSeen))
	} else {
		fmt.Fprintf(a.out, "what keeps %s from work:\n", name)
		a.printReasons(v.Reasons)
	}
	for _, r := range w.Refusals {
		why := ""
		if r.Why != "" {
			why = ": " + printable(r.Why)
		}
		fmt.Fprintf(a.out, "  its policy has refused lately%s (%s, %s)\n", why, r.Code, longAgo(r.At))
	}
	return nil
}

// whyHub says what keeps orders of a hub from being done on this host.
func (a *app) whyHub(v connectionView) error {
	if !a.forPeople() {
		return a.print(v, []any{v}, table{names: []string{v.Name}})
	}
	if len(v.Reasons) == 0 {
		_, err := fmt.Fprintf(a.out, "nothing of the connection keeps orders of %s from being done here; of one agent: %s; of this host: %s\n", printable(v.Name), a.line("why", "ID"), a.line("doctor"))
		return err
	}
	fmt.Fprintf(a.out, "what keeps orders of %s from being done here:\n", printable(v.Name))
	a.printReasons(v.Reasons)
	return nil
}
