package node

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// GetInstance implements [api.StrictServerInterface].
func (s resources) GetInstance(asked context.Context, _ api.GetInstanceRequestObject) (api.GetInstanceResponseObject, error) {
	ctx, done := context.WithTimeout(asked, checkTime)
	defer done()
	in := s.n.Instance
	err := s.n.databaseAnswers(ctx)
	away := err != nil
	health := []control.Check{control.NewCheck(control.DatabaseCheck, err)}
	if away { // what needs no database has time of its own, and what else is read of that is left out
		ctx, done = context.WithTimeout(asked, databaseTime)
		defer done()
	} else if clock := s.n.checkClock(ctx); !clock.OK {
		health = append(health, clock)
	}
	v := api.Instance{ID: string(in.Keys.InstanceID()), Fingerprint: signing.Fingerprint(in.Keys.Identity.Public()), Version: s.n.Version, Pid: os.Getpid()}
	var roles []string
	if s.n.Hub != nil {
		about, checks := s.n.Hub.Describe(ctx)
		v.Name, v.Link = about.Name, about.Link
		health, roles = append(health, checks...), append(roles, "hub")
	}
	if s.n.API != nil {
		v.API = s.n.API.URL()
	}
	if s.n.Spoke != nil {
		if about, checks := s.n.Spoke.Describe(); about != nil {
			v.KillLevel, v.Isolation, v.Policy, v.Slots, v.Running = about.KillLevel, about.Isolation, about.Policy, about.Slots, about.Running
			v.LastSweepAt = about.Swept
			v.Held = api.Held{Root: about.Held.AsRoot, Faults: about.Held.Faults}
			health, roles = append(health, checks...), append(roles, "spoke")
		}
	}
	if s.n.Spoke != nil && !away {
		keeps, err := s.n.Spoke.Keeps(ctx)
		if v.Reasons = mapped(keeps, reasonOf); err != nil {
			health = append(health, control.NewCheck("freezes", err))
		}
	}
	health = slices.Concat(health, s.n.checkAnswers(), s.n.checkQueues(ctx), s.n.checkAudit())
	if !away { // else that is why tries fail
		failing := slices.DeleteFunc(s.n.checkTries(), func(c control.Check) bool { return c.OK })
		health = slices.Concat(health, failing, s.n.checkPeerAudits(ctx), s.n.checkWebhooks(ctx))
	}
	v.Role, v.Health = api.InstanceRole(strings.Join(roles, " and ")), mapped(append(health, s.n.checkKeys()...), checkOf)
	return api.GetInstance200JSONResponse(v), nil
}

// checkQueues names the queues of connections that stand still.
func (n *Node) checkQueues(ctx context.Context) (list []control.Check) {
	for _, q := range n.board.Unread(ctx) {
		list = append(list, control.Check{Name: q.Name, Problem: q.Problem})
	}
	return list
}

// checkKeys names the keys in use that the other side has ended.
func (n *Node) checkKeys() (list []control.Check) {
	for _, s := range n.board.Statuses(store.Commands, store.Obeys) {
		if err := s.KeyError(); err != nil {
			list = append(list, control.NewCheck("key for "+s.Name, err))
		}
		if err := cmp.Or(s.KeySetError(), s.LostKeyError()); err != nil {
			list = append(list, control.NewCheck("keys for "+s.Name, err))
		}
		if err := s.PeerKeyError(); err != nil {
			list = append(list, control.NewCheck("key of "+s.Name, err))
		}
	}
	return list
}

func checkOf(c control.Check) api.Check {
	return api.Check{Name: c.Name, OK: c.OK, Note: c.Note, Problem: c.Problem, Run: c.Run, Remote: c.Remote}
}
