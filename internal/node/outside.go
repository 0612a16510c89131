package node

import (
	"net/http"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// outside refuses what an agent asks: where it has the user of its spoke, the mode of the socket
// does not keep it out.
func outside(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if supervisor.Inside(control.Caller(r).Pid()) {
			control.Error(w, commands.Refuse(control.Forbidden, "agents may not control an instance"))
			return
		}
		h.ServeHTTP(w, r)
	})
}
