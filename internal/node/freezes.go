package node

import (
	"context"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// ListFreezes implements [api.StrictServerInterface].
func (s resources) ListFreezes(ctx context.Context, r api.ListFreezesRequestObject) (api.ListFreezesResponseObject, error) {
	ws, err := s.workspace(ctx, r.Workspace)
	if err != nil {
		return nil, err
	}
	list, err := ws.Freezes(ctx)
	if err == nil {
		err = s.nameTargets(ctx, list)
	}
	return api.ListFreezes200JSONResponse{Items: mapped(list, func(f backlog.Freeze) api.Freeze {
		return api.Freeze{Scope: f.Scope, Target: f.Target, Reason: f.Reason, Actor: f.Actor, Since: f.Since}
	})}, err
}

// Freeze implements [api.StrictServerInterface].
func (s resources) Freeze(ctx context.Context, r api.FreezeRequestObject) (api.FreezeResponseObject, error) {
	ws, err := s.workspace(ctx, r.Workspace)
	b := r.Body
	v := api.FrozenJSONResponse{Scope: b.Scope, Target: b.Target, Frozen: true}
	if err == nil {
		b.Target, v.Target, err = s.frozenTarget(ctx, b.Scope, b.Target)
	}
	if err != nil {
		return nil, err
	}
	was, err := ws.Freeze(ctx, backlog.Freeze{Scope: b.Scope, Target: b.Target, Reason: b.Reason})
	switch {
	case err != nil:
	case was != nil:
		v.Already, v.Reason, v.Actor, v.Since = true, was.Reason, was.Actor, was.Since
	default:
		s.n.logFreeze(ctx, "frozen", b.Scope, v.Target, b.Reason)
		if err = s.tellFrozen(ctx, b.Scope); err == nil {
			v.Unheard, err = s.unheard(ctx, b.Scope, b.Target)
		}
	}
	return api.Freeze200JSONResponse{FrozenJSONResponse: v}, err
}

// Unfreeze implements [api.StrictServerInterface].
func (s resources) Unfreeze(ctx context.Context, r api.UnfreezeRequestObject) (api.UnfreezeResponseObject, error) {
	ws, err := s.workspace(ctx, r.Workspace)
	b := r.Body
	v := api.FrozenJSONResponse{Scope: b.Scope, Target: b.Target}
	if err == nil && b.Reason == "" {
		err = lacksReason("unfreeze " + commands.Clip(b.Scope))
	}
	if err == nil {
		b.Target, v.Target, err = s.frozenTarget(ctx, b.Scope, b.Target)
	}
	if err == nil {
		err = ws.Unfreeze(ctx, b.Scope, b.Target, b.Reason)
	}
	if commands.CodeOf(err) == commands.NotFound && v.Target != b.Target { // it knows the id alone
		err = commands.Refuse(commands.NotFound, "%s:%s is not frozen", b.Scope, v.Target).Hinting("see what is").Running("freeze", "list")
	}
	if err == nil {
		s.n.logFreeze(ctx, "unfrozen", b.Scope, v.Target, b.Reason)
		err = s.tellFrozen(ctx, b.Scope)
	}
	return api.Unfreeze200JSONResponse{FrozenJSONResponse: v}, err
}

// frozenTarget is what a freeze is about, and what people call that: a connection may be named by who may see it.
func (s resources) frozenTarget(ctx context.Context, scope, target string) (id, name string, err error) {
	if scope != "connection" || !control.CallerOf(ctx).Everywhere() {
		return target, target, nil
	}
	list, err := s.n.Instance.DB.Connections(ctx)
	if err != nil {
		return "", "", err
	}
	slices.Reverse(list) // of those that had a name, the newest
	for _, c := range list {
		if c.ID == target || c.Name == target {
			return c.ID, c.Name, nil
		}
	}
	return "", "", commands.Refuse(commands.NotFound, "no connection %s", commands.Clip(target)).Hinting("see").Running("connections", "list")
}

// nameTargets names the connections that are frozen.
func (s resources) nameTargets(ctx context.Context, list []backlog.Freeze) error {
	if !control.CallerOf(ctx).Everywhere() || !slices.ContainsFunc(list, func(f backlog.Freeze) bool { return f.Scope == "connection" }) {
		return nil
	}
	conns, err := s.n.Instance.DB.Connections(ctx)
	for i, f := range list {
		for _, c := range conns {
			if f.Scope == "connection" && c.ID == f.Target {
				list[i].Target = c.Name
			}
		}
	}
	return err
}

// tellFrozen has peers told of what is frozen over their connections, where this instance runs.
func (s resources) tellFrozen(ctx context.Context, scope string) error {
	if s.n.board == nil || scope == "lane" || scope == "account" {
		return nil
	}
	s.n.board.Beat() // hubs that are obeyed here know at once
	return s.n.board.Await(ctx)
}

// A freeze is awaited for so long at linked spokes; mostUnheard is how many are named that have not heard of it.
const (
	hearing     = 2 * time.Second
	mostUnheard = 100
)

// unheard names the spokes whose orders a freeze holds and that have not said yet that they know of it.
func (s resources) unheard(ctx context.Context, scope, target string) (names []string, err error) {
	if s.n.Hub == nil || s.n.board == nil || scope != "instance" && scope != "connection" || !control.CallerOf(ctx).Everywhere() {
		return nil, nil
	}
	ctx, done := context.WithTimeout(ctx, hearing)
	defer done()
	f, err := s.n.Instance.DB.Freezes(ctx)
	for err == nil {
		linked := false
		names = nil
		for _, c := range s.n.board.Statuses(store.Commands) {
			if v := f.Of(c.ID); v != nil && !c.State.Ended() && c.Heeds < v.Number && (scope == "instance" || c.ID == target) {
				names, linked = append(names, c.Name), linked || c.Linked
			}
		}
		if !linked || wait.For(ctx, 20*time.Millisecond) != nil {
			break
		}
	}
	return names[:min(len(names), mostUnheard)], err
}

// logFreeze says in the log of a running instance what was frozen, or is no longer.
func (n *Node) logFreeze(ctx context.Context, what, scope, target, reason string) {
	if n.Log != nil {
		n.Log.WarnContext(ctx, "what may be started was changed by hand", "now", what, "scope", scope, "target", target, "by", control.CallerOf(ctx), "reason", reason)
	}
}
