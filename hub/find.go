package hub

import (
	"context"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/store"
)

// findSpoke returns the connection with the spoke that a person means.
func (h *Hub) findSpoke(text string) (federation.Status, error) {
	s, err := h.board.Find(text, store.Commands)
	if err != nil {
		if up, known := h.board.Find(text, store.Obeys); known == nil {
			return s, commands.Refuse(commands.Validation, "%s is a hub that this instance obeys, not a spoke of it", up.Name).Hinting("see").Running("connections", "list")
		}
	}
	return s, err
}

// Find returns the one mirror that a person means by an id or a prefix of it.
func (h *Hub) Find(ctx context.Context, text string) (store.Mirror, error) {
	text = strings.ToLower(text)
	if _, _, ok := commands.IDRange(text); !ok {
		return store.Mirror{}, commands.Refuse(commands.Validation, "%q is not an agent id or six or more characters of one", text)
	}
	list, err := h.DB.FindMirrors(ctx, text)
	switch {
	case err != nil:
		return store.Mirror{}, err
	case len(list) == 0:
		return store.Mirror{}, commands.Refuse(commands.NotFound, "no agent %s", text).Hinting("see").Running("agents")
	case len(list) > 1:
		return store.Mirror{}, commands.Refuse(commands.Ambiguous, "%s fits several agents", text).Hinting("use more of the id; see").Running("agents", "-o", "wide")
	}
	return list[0], nil
}
