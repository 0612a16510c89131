package node

import (
	"net/http"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

// routes are what an operator may ask of the instance. What belongs to one of the
// roles alone, that role answers.
func (n *Node) routes() http.Handler {
	m := http.NewServeMux()
	m.Handle(api.Base+"/", api.Serve(resources{n}, func(w http.ResponseWriter, _ *http.Request, err error) { control.Error(w, err) }))
	m.HandleFunc("GET /v1/agents", n.listAgents)
	var roles []*http.ServeMux
	if n.Hub != nil {
		roles = append(roles, n.Hub.Routes())
	}
	if n.Spoke != nil {
		roles = append(roles, n.Spoke.Routes())
	}
	m.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		for _, role := range roles {
			if _, pattern := role.Handler(r); pattern != "" {
				role.ServeHTTP(w, r)
				return
			}
		}
		http.NotFound(w, r)
	})
	if len(roles) == 2 {
		m.HandleFunc("/v1/agents/{id}", n.ofOneRole(roles[0], roles[1]))
		m.HandleFunc("/v1/agents/{id}/{what}", n.ofOneRole(roles[0], roles[1]))
	}
	return m
}
