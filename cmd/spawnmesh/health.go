package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// healthTime is how long the instance may take to answer: it gives its own
// checks less.
const healthTime = 8 * time.Second

func (a *app) healthCommand() *cobra.Command {
	return &cobra.Command{
		Use: "health", Short: "Say whether the instance serves, for health checks", Args: cobra.NoArgs,
		Long: `Ask the running instance whether it serves, as /readyz does: its process, its
database with its schema and clock, its message server, its disk, and whether its
claims or heartbeats keep failing. The exit code is 0 when it serves and 1 when it
does not, or does not run.

What other machines do does not count, as a link or the receiver of a webhook
that is down: no restart of this one mends it. What is wrong besides:
spawnmesh doctor`,
		Example: "  spawnmesh --data-dir S health",
		RunE:    func(c *cobra.Command, _ []string) error { return a.health(c.Context()) },
	}
}

// health is for programs that ask every few seconds: one call, one line.
func (a *app) health(ctx context.Context) error {
	ctx, done := context.WithTimeout(ctx, healthTime)
	defer done()
	var v running
	c, err := a.client()
	if err == nil {
		c.Hung = nil // one line says it
		err = c.Do(ctx, http.MethodGet, "/readyz", nil, nil)
	}
	if err == nil {
		v, err = askRunning(ctx, c) // who it is that serves; what else is wrong with it is for doctor
	}
	if err != nil {
		return commands.Refuse(commands.Internal, "the instance does not serve: %v", err).Hinting("see: %s doctor", a.self())
	}
	answer := struct {
		Role string `json:"role"`
		Pid  int    `json:"pid"`
	}{v.Role, v.Pid}
	return a.print(answer, []any{answer}, table{head: []string{"ROLE", "PID"}, rows: [][]string{{v.Role, fmt.Sprint(v.Pid)}}, names: []string{v.Role}})
}

// running is what a hub and a spoke both say about themselves.
type running struct {
	Role    string               `json:"role"`
	Pid     int                  `json:"pid"`
	API     string               `json:"api"` // where a hub serves other programs; "" = nowhere
	Slots   int                  `json:"slots"`
	Running int                  `json:"running"`
	Policy  string               `json:"policy"`
	Held    *policy.Found        `json:"held"`    // nil of an instance that is no spoke
	Reasons []commands.WhyReason `json:"reasons"` // what keeps a spoke from starting agents of any hub
	Health  []control.Check      `json:"health"`
}

// askInstance asks the instance that runs in the data directory.
func (a *app) askInstance(ctx context.Context) (running, error) {
	c, err := a.client()
	if err != nil {
		return running{}, err
	}
	return askRunning(ctx, c)
}

func askRunning(ctx context.Context, c *control.Client) (running, error) {
	return control.Read[running](c.API().GetInstance(ctx))
}
