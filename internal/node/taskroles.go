package node

import (
	"context"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// obeys reports whether hubs order agents here, or have.
func (s resources) obeys() bool {
	return s.n.Hub == nil || s.n.Spoke != nil && len(s.n.board.Statuses(store.Obeys)) > 0
}

// isAway reports whether an agent is one that this instance ordered, and not one that runs here.
// Where there is one of each by the same text, a person has to say more.
func (s resources) isAway(ctx context.Context, text string) (bool, error) {
	if s.n.Hub == nil || !s.obeys() {
		return s.n.Hub != nil, nil
	}
	_, away := s.n.Hub.Find(ctx, text)
	_, local := s.n.Spoke.Find(ctx, text)
	if away == nil && local == nil {
		return false, commands.Refuse(commands.Ambiguous, "%s fits an agent that runs here and one that runs on a spoke", text).
			Hinting("use more of the id; see").Running("agents", "-o", "wide")
	}
	return commands.CodeOf(away) != commands.NotFound || commands.CodeOf(local) == commands.NotFound, nil
}
