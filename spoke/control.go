package spoke

import (
	"context"
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// An Instance describes a running spoke to its host.
type Instance struct {
	Role        string             `json:"role"`
	ID          signing.InstanceID `json:"id"`
	Fingerprint string             `json:"fingerprint"`
	Version     string             `json:"version"`
	Pid         int                `json:"pid"`
	KillLevel   string             `json:"kill_level"`
	Policy      string             `json:"policy"` // version in force
	Slots       int                `json:"slots"`
	Running     int                `json:"running"`
	Health      []control.Check    `json:"health"`
}

// A LocalAgent is an attempt that runs here now.
type LocalAgent struct {
	Fence backlog.Fence  `json:"fence"`
	Title string         `json:"title,omitempty"`
	State commands.State `json:"state"`
	Pid   int            `json:"pid,omitempty"`
	Dir   string         `json:"dir"`
}

// control routes what the host may ask of its spoke.
func (s *Spoke) control() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /v1/instance", s.getInstance)
	m.HandleFunc("GET /v1/running", s.getRunning)
	s.agents().route(m)
	m.HandleFunc("POST /v1/agents/{id}/kill", s.postKill)
	m.HandleFunc("GET /v1/connections", s.getConnections)
	m.HandleFunc("GET /v1/connections/{name}", s.getConnection)
	m.HandleFunc("POST /v1/connections/{name}/{state}", s.postConnection)
	m.HandleFunc("POST /v1/connections/{name}/resync", s.postResync)
	m.HandleFunc("POST /v1/connections/{name}/grant", s.postGrant)
	m.HandleFunc("POST /v1/policy/reload", s.postPolicyReload)
	m.HandleFunc("GET /v1/keys", s.getKeys)
	m.HandleFunc("POST /v1/keys", s.postKeys)
	m.HandleFunc("GET /v1/audit", s.getAudit)
	return m
}

func (s *Spoke) getInstance(w http.ResponseWriter, r *http.Request) {
	ctx, done := context.WithTimeout(r.Context(), 5*time.Second)
	defer done()
	_, dbErr := s.DB.Now(ctx)
	v := Instance{Role: "spoke", ID: s.Keys.InstanceID(), Fingerprint: signing.Fingerprint(s.Keys.Identity.Public()), Version: s.Version,
		Pid: os.Getpid(), KillLevel: s.level, Slots: s.Slots, Running: s.live.count(), Policy: s.Policy.Now().ID(), Health: []control.Check{control.NewCheck("postgres", dbErr)}}
	for _, c := range s.board.Statuses(store.Obeys) {
		if c.State.Ended() {
			continue
		}
		link := control.NewCheck("link to "+c.Name, linkError(c))
		link.Remote = true
		v.Health = append(v.Health, link)
		if err := c.KeyError(); err != nil {
			v.Health = append(v.Health, control.NewCheck("key for "+c.Name, err))
		}
	}
	for _, q := range s.board.Unread(ctx) {
		v.Health = append(v.Health, control.Check{Name: q.Name, Problem: q.Problem})
	}
	control.JSON(w, v)
}

// linkError says why there is no link.
func linkError(c federation.Status) error {
	switch {
	case c.Linked:
		return nil
	case c.Cause != nil:
		return commands.Refuse(commands.Unreachable, "down: %v", c.Cause)
	}
	return commands.Refuse(commands.Unreachable, "down")
}

func (s *Spoke) getRunning(w http.ResponseWriter, r *http.Request) {
	list := make([]LocalAgent, 0)
	for _, a := range s.live.list() {
		l := LocalAgent{Fence: a.fence, Title: a.spec.Title, State: commands.Claimed, Dir: a.dir}
		if agent := s.live.agentOf(a); agent != nil {
			l.Pid, l.State = agent.Pid(), commands.Running
		}
		list = append(list, l)
	}
	control.JSON(w, list)
}

// A HubView is a hub as the host of a spoke sees it.
type HubView struct {
	store.Connection
	Grant       store.GrantTerms     `json:"grant"`
	Running     int                  `json:"running"` // agents that it asked for
	Remote      string               `json:"remote"`  // where it is dialled
	Linked      bool                 `json:"linked"`
	LinkedSince *time.Time           `json:"linked_since,omitempty"`
	LastSeen    *time.Time           `json:"last_seen,omitempty"`
	Differs     string               `json:"differs,omitempty"` // why nothing is relayed: one side was restored from a backup
	Says        commands.LinkView    `json:"peer_says"`         // what the hub says about the connection
	Queues      []federation.Waiting `json:"queues,omitempty"`  // what waits at the hub to be taken here; empty without a link
}

func (s *Spoke) viewOfHub(c federation.Status, grants map[string]store.GrantTerms) HubView {
	v := HubView{Connection: c.Connection, Grant: grants[c.ID], Running: s.live.countOf(c.ID), Remote: c.LinkURL, Linked: c.Linked, Differs: c.Differs}
	if c.Linked {
		v.LinkedSince = &c.Since
	}
	if c.Beat != nil {
		v.LastSeen, v.Says = &c.Beat.At, c.Beat.Body.Link
	}
	return v
}

func (s *Spoke) getConnections(w http.ResponseWriter, r *http.Request) {
	grants, err := s.DB.Grants(r.Context())
	list, queues := make([]HubView, 0), s.board.Queues(r.Context())
	for _, c := range s.board.Statuses(store.Obeys) {
		v := s.viewOfHub(c, grants)
		v.Queues = queues[c.ID]
		list = append(list, v)
	}
	reply(w, list, err)
}

func (s *Spoke) getConnection(w http.ResponseWriter, r *http.Request) {
	grants, err := s.DB.Grants(r.Context())
	c, missing := s.board.Find(store.Obeys, r.PathValue("name"))
	v := s.viewOfHub(c, grants)
	v.Queues = s.board.Queues(r.Context())[c.ID]
	reply(w, v, errors.Join(missing, err))
}

// postGrant changes what a hub may ask for here, as far as the request says.
func (s *Spoke) postGrant(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Kinds    *[]string  `json:"kinds"`
		Runtimes *[]string  `json:"runtimes"`
		Weight   *int       `json:"weight"`
		Expires  *time.Time `json:"expires"` // the zero time = never
	}
	err := control.Decode(r, &req)
	c, missing := s.board.Find(store.Obeys, r.PathValue("name"))
	if err = errors.Join(err, missing); err != nil {
		control.Error(w, err)
		return
	}
	set := func(g *store.GrantTerms) {
		if req.Kinds != nil {
			g.Kinds = *req.Kinds
		}
		if req.Runtimes != nil {
			g.Runtimes = *req.Runtimes
		}
		if req.Weight != nil {
			g.Weight = *req.Weight
		}
		if req.Expires != nil {
			if g.Expires = req.Expires; req.Expires.IsZero() {
				g.Expires = nil
			}
		}
	}
	g, err := s.DB.SetGrant(context.WithoutCancel(r.Context()), c.ID, control.Caller(r), set)
	ring(s.work) // more may be started now
	reply(w, g, err)
}

// postConnection is the host's own right: to stop obeying, for a while or for
// good.
func (s *Spoke) postConnection(w http.ResponseWriter, r *http.Request) {
	change := federation.Change{Verb: r.PathValue("state"), Actor: control.Caller(r)}
	var c store.Connection
	err := control.Decode(r, &struct{ Reason *string }{&change.Reason})
	if err == nil {
		c, err = s.board.Change(r.Context(), store.Obeys, r.PathValue("name"), change)
	}
	if err != nil {
		control.Error(w, err)
		return
	}
	control.JSON(w, c)
}

// postResync compares the histories of a connection anew and answers when they
// agree.
func (s *Spoke) postResync(w http.ResponseWriter, r *http.Request) {
	v, err := s.board.Resync(r.Context(), store.Obeys, r.PathValue("name"), control.Caller(r))
	reply(w, v, err)
}

func (s *Spoke) getAudit(w http.ResponseWriter, r *http.Request) {
	list, err := s.DB.AuditTrail(r.Context(), r.URL.Query().Get("object"), 1000)
	if err != nil {
		control.Error(w, err)
		return
	}
	control.JSON(w, list)
}
