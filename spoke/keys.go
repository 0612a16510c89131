package spoke

import (
	"net/http"

	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store"
)

func (s *Spoke) getKeys(w http.ResponseWriter, r *http.Request) {
	v, err := s.DB.KeysView(r.Context())
	answer(w, v, err)
}

// postKeys rotates the signing key, or revokes one.
func (s *Spoke) postKeys(w http.ResponseWriter, r *http.Request) {
	var v store.KeysView
	change := store.KeyChange{Actor: control.Caller(r)}
	err := control.Decode(r, &change)
	if err == nil {
		v, err = s.board.ChangeKey(r.Context(), change)
	}
	answer(w, v, err)
}

func answer(w http.ResponseWriter, v any, err error) {
	if err != nil {
		control.Error(w, err)
		return
	}
	control.JSON(w, v)
}
