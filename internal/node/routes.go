package node

import (
	"net/http"
	"strings"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/instance"
	"github.com/spawnmesh/spawnmesh/internal/tracing"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/store/messages"
)

// routes are what an operator may ask of the instance.
func (n *Node) routes() http.Handler {
	r := resources{n: n, backlog: spoke.Backlog(n.Instance.DB, n.Instance.Dir), log: messages.Open(n.Instance.DB)}
	if n.Spoke != nil {
		r.desk = n.Spoke.Desk()
	}
	return traced(api.Serve(r, n.plain(), control.May, control.Fail))
}

// traced notes what a request belongs to.
func traced(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(tracing.WithParent(r.Context(), r.Header.Get(tracing.Header))))
	})
}

// AtRest are those of the same routes that need nothing but the database: the backlog of an instance
// that does not run, and what its host knows of agents and answers them. Anything else needs one that runs.
func AtRest(in *instance.Instance) http.Handler {
	h := api.Serve(resources{n: &Node{Instance: in}, desk: spoke.DeskOf(in.DB, in.Dir), backlog: spoke.Backlog(in.DB, in.Dir), log: messages.Open(in.DB)}, api.Plain{}, control.May, control.Fail)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if atRest(r) {
			h.ServeHTTP(w, r)
			return
		}
		control.Error(w, control.NotRunning(in.Dir, ", and this needs one"))
	})
}

// atRest reports whether an instance at rest answers a request.
func atRest(r *http.Request) bool {
	path, _ := strings.CutPrefix(r.URL.Path, api.Base)
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	return strings.HasPrefix(path+"/", "/workspaces/") || strings.HasPrefix(path+"/", "/questions/") || strings.HasPrefix(path, "/retention") || reads && (strings.HasPrefix(path, "/tasks") || strings.HasPrefix(path, "/audit/") || path == "/openapi.json")
}
