package hub

import (
	"context"

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

// Find returns the one mirror that a person means by an id, by a part of one, or by a title.
func (h *Hub) Find(ctx context.Context, text string) (store.Mirror, error) {
	list, err := h.DB.FindMirrors(ctx, text)
	switch {
	case err != nil:
		return store.Mirror{}, err
	case len(list) == 0:
		return store.Mirror{}, commands.NoAgent(text)
	case len(list) > 1:
		return store.Mirror{}, commands.Several(text, "agents", candidates(list))
	}
	return list[0], nil
}

// Fitting returns what tells those agents apart that text fits, as [Hub.Find] takes it.
func (h *Hub) Fitting(ctx context.Context, text string) ([]string, error) {
	list, err := h.DB.FindMirrors(ctx, text)
	return candidates(list), err
}

// candidates says of agents what tells them apart.
func candidates(list []store.Mirror) (all []string) {
	for _, m := range list {
		all = append(all, commands.Candidate(m.Task, m.Title, string(m.State)+" on "+m.Spoke))
	}
	return all
}
