package hub

import (
	"net/http"

	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store"
)

func (h *Hub) getKeys(w http.ResponseWriter, r *http.Request) {
	v, err := h.DB.KeysView(r.Context())
	reply(w, v, unavailable(err))
}

// postKeys rotates the signing key, or revokes one.
func (h *Hub) postKeys(w http.ResponseWriter, r *http.Request) {
	var v store.KeysView
	change := store.KeyChange{Actor: control.Caller(r)}
	err := control.Decode(r, &change)
	if err == nil {
		v, err = h.board.ChangeKey(r.Context(), change)
	}
	reply(w, v, err)
}
