package main

import (
	"context"
	"fmt"
	"net/url"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store"
)

// openOnHub says of an agent that has not ended what it waits for, or that it
// runs, as far as its hub knows.
func (a *app) openOnHub(ctx context.Context, c *control.Client, v hub.AgentView) (string, error) {
	var conn connectionView
	if err := c.Do(ctx, "GET", "/v1/connections/"+url.PathEscape(v.Conn), nil, &conn); err != nil {
		return "", err
	}
	if v.State == commands.Queued {
		return "it waits for " + missing(v, conn), nil
	}
	said := fmt.Sprintf("it is %s", v.State)
	if conn.Linked && conn.Liveness == "alive" {
		return said, nil
	}
	return fmt.Sprintf("%s, as %s last said: the link is %s (%s); an agent of a host that is gone for good ends with: %s connections revoke %s --reason WHY",
		said, v.Spoke, linkOf(conn), seenOf(conn), a.self(), v.Spoke), nil
}

// missing says what an agent waits for that has not started.
func missing(v hub.AgentView, conn connectionView) string {
	switch {
	case conn.State != store.Active:
		return fmt.Sprintf("the connection with %s, which is %s", v.Spoke, conn.State)
	case !conn.Linked:
		return fmt.Sprintf("the link with %s, which is down (%s)", v.Spoke, seenOf(conn))
	case conn.Says.Refuses != nil:
		return fmt.Sprintf("%s, which has ended the key that this hub signs with; after a restore from an older backup: spawnmesh keys revoke %s --reason restored", v.Spoke, conn.Says.Refuses.Key)
	case v.AcceptedAt == nil:
		return fmt.Sprintf("%s to accept it", v.Spoke)
	case v.Attempt > 0:
		return "its next try"
	}
	return fmt.Sprintf("a free slot on %s, which has %d", v.Spoke, conn.Slots)
}

// statusOnHost says what else the host of an open agent may want to know.
func (a *app) statusOnHost(ctx context.Context, v agentView) error {
	dir, err := a.dir()
	switch {
	case err != nil:
		return err
	case v.State == commands.Queued:
		fmt.Fprintf(a.err, "\nwhy it waits: %s why %s\n", a.self(), v.Task)
	case !control.Runs(ctx, dir):
		fmt.Fprintf(a.err, "\nno spoke runs here: this is what the last one wrote; start it with: %s spoke run\n", a.self())
	}
	return nil
}
