package fleet

import (
	"context"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

// Order gives attic an order until it is taken: the id is the caller's, so that giving
// it again is the same order.
func (m *Mesh) Order(ctx context.Context, id string, argv []string) error {
	return Poll(ctx, time.Minute, "ordering "+id, func() (bool, error) {
		req := hub.SpawnRequest{ID: id, Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: argv}}
		err := m.Ctl.Do(ctx, "POST", "/api/v1/tasks", req.Revealed(), nil)
		switch commands.CodeOf(err) {
		case "":
			return true, nil
		case commands.Unreachable, commands.StoreDown, commands.Internal:
			return false, nil // the hub is down, or died over it
		}
		return false, err
	})
}

// Ended waits for an agent's end.
func (m *Mesh) Ended(ctx context.Context, id string, limit time.Duration) (hub.AgentView, error) {
	var v hub.AgentView
	err := Poll(ctx, limit, "waiting for the end of "+id, func() (bool, error) {
		err := m.Ctl.Do(ctx, "GET", "/api/v1/tasks/"+id, nil, &v)
		if c := commands.CodeOf(err); c == commands.Unreachable || c == commands.StoreDown || c == commands.Internal {
			return false, nil
		}
		return v.State.Terminal(), err
	})
	return v, err
}

// Settled waits until both sides have confirmed everything to each other.
func (m *Mesh) Settled(ctx context.Context) error {
	return Poll(ctx, 2*time.Minute, "waiting for confirmations", func() (bool, error) {
		var views control.Items[hub.SpokeView]
		err := m.Ctl.Do(ctx, "GET", "/api/v1/connections", nil, &views)
		return err == nil && views.Items[0].Unconfirmed == 0, nil
	})
}
