package node

import (
	"context"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/store"
)

// An Instance describes a running instance to its operator, with what each of its
// roles says.
type Instance struct {
	Role        string             `json:"role"` // hub, spoke, or hub and spoke
	ID          signing.InstanceID `json:"id"`
	Fingerprint string             `json:"fingerprint"`
	Version     string             `json:"version"`
	Pid         int                `json:"pid"`
	*AsHub
	*AsSpoke
	Health []control.Check `json:"health"`
}

// What the roles say about themselves.
type (
	AsHub   = hub.Description
	AsSpoke = spoke.Description
)

// routes are what an operator may ask of the instance. What belongs to one of the
// roles alone, that role answers.
func (n *Node) routes() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /v1/instance", n.getInstance)
	m.HandleFunc("GET /v1/connections", n.listConnections)
	m.HandleFunc("GET /v1/connections/{name}", n.getConnection)
	m.HandleFunc("POST /v1/connections/{name}/{verb}", n.postConnection)
	m.HandleFunc("POST /v1/connections/{name}/grant", n.postGrant)
	m.HandleFunc("POST /v1/connections/{name}/resync", n.postResync)
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

func (n *Node) getInstance(w http.ResponseWriter, r *http.Request) {
	ctx, done := context.WithTimeout(r.Context(), 5*time.Second)
	defer done()
	in := n.Instance
	_, err := in.DB.Now(ctx)
	v := Instance{ID: in.Keys.InstanceID(), Fingerprint: signing.Fingerprint(in.Keys.Identity.Public()), Version: n.Version, Pid: os.Getpid(),
		Health: []control.Check{control.NewCheck("postgres", err)}}
	var roles []string
	if n.Hub != nil {
		about, checks := n.Hub.Describe(ctx)
		v.AsHub, v.Health, roles = about, append(v.Health, checks...), append(roles, "hub")
	}
	if n.Spoke != nil {
		if about, checks := n.Spoke.Describe(); about != nil {
			v.AsSpoke, v.Health, roles = about, append(v.Health, checks...), append(roles, "spoke")
		}
	}
	for _, q := range n.board.Unread(ctx) {
		v.Health = append(v.Health, control.Check{Name: q.Name, Problem: q.Problem})
	}
	for _, s := range n.board.Statuses(store.Commands, store.Obeys) {
		if err := s.KeyError(); err != nil {
			v.Health = append(v.Health, control.NewCheck("key for "+s.Name, err))
		}
		if err := s.PeerKeyError(); err != nil {
			v.Health = append(v.Health, control.NewCheck("key of "+s.Name, err))
		}
	}
	v.Role = strings.Join(roles, " and ")
	control.JSON(w, v)
}
