package node

import (
	"context"
	"slices"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// obeys reports whether hubs order agents here, or have.
func (s resources) obeys() bool {
	return s.n.Hub == nil || s.n.Spoke != nil && len(s.n.board.Statuses(store.Obeys)) > 0
}

// isAway reports whether an agent is one that this instance ordered, and not one that runs here.
// Where a text fits some of both, a person has to say more.
func (s resources) isAway(ctx context.Context, text string) (bool, error) {
	if s.n.Hub == nil || !s.obeys() {
		return s.n.Hub != nil, nil
	}
	away, err := s.n.Hub.Fitting(ctx, text)
	if err != nil {
		return false, err
	}
	here, err := s.n.Spoke.Fitting(ctx, text)
	if err != nil || len(here) == 0 || len(away) == 0 {
		return len(here) == 0, err
	}
	some := min(2, len(here)) // so that some of both are named
	return false, commands.Several(text, "agents", slices.Concat(here[:some], away, here[some:]))
}
