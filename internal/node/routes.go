package node

import (
	"net/http"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/instance"
	"github.com/spawnmesh/spawnmesh/spoke"
)

// routes are what an operator may ask of the instance.
func (n *Node) routes() http.Handler {
	r := resources{n: n}
	if n.Spoke != nil {
		r.desk = n.Spoke.Desk()
	}
	return api.Serve(r, n.plain(), fail)
}

// AtRest are the same routes of an instance of a spoke that does not run: those that read what
// its host knows of agents. Anything else needs one that runs.
func AtRest(in *instance.Instance) http.Handler {
	reads := api.Serve(resources{n: &Node{Instance: in}, desk: spoke.DeskOf(in.DB, in.Dir)}, api.Plain{}, fail)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if (r.Method == http.MethodGet || r.Method == http.MethodHead) && strings.HasPrefix(r.URL.Path, api.Base+"/tasks") {
			reads.ServeHTTP(w, r)
			return
		}
		control.Error(w, commands.Refuse(commands.Unreachable, "no instance runs in %s, and this needs one", in.Dir).Hinting("start it").Running("spoke", "run"))
	})
}

func fail(w http.ResponseWriter, _ *http.Request, err error) { control.Error(w, err) }
