package spoke

import (
	"context"
	"net/http"
	"os"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
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
	Link        string             `json:"link"`
	LinkState   string             `json:"link_state"`
	KillLevel   string             `json:"kill_level"`
	Slots       int                `json:"slots"`
	Running     int                `json:"running"`
	Policy      string             `json:"policy"` // version in force
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
	m.HandleFunc("GET /v1/connections", s.getConnections)
	m.HandleFunc("GET /v1/connections/{name}", s.getConnection)
	m.HandleFunc("POST /v1/connections/{name}/{state}", s.postConnection)
	m.HandleFunc("GET /v1/audit", s.getAudit)
	m.HandleFunc("POST /v1/policy/reload", s.postPolicyReload)
	return m
}

func (s *Spoke) getInstance(w http.ResponseWriter, r *http.Request) {
	ctx, done := context.WithTimeout(r.Context(), 5*time.Second)
	defer done()
	conn, _ := s.hub.get()
	link := "up"
	if st := s.link.State(); !st.Up {
		link = "down"
		if st.Cause != nil {
			link = "down: " + st.Cause.Error()
		}
	}
	_, dbErr := s.DB.Now(ctx)
	control.JSON(w, Instance{Role: "spoke", ID: s.Keys.InstanceID(), Fingerprint: signing.Fingerprint(s.Keys.Identity.Public()), Version: s.Version,
		Pid: os.Getpid(), Link: conn.LinkURL, LinkState: link, KillLevel: s.level, Slots: s.Slots, Running: s.live.count(), Policy: s.Policy.Now().ID(),
		Health: []control.Check{control.NewCheck("postgres", dbErr), control.NewCheck("link", linkError(link))}})
}

func linkError(state string) error {
	if state == "up" {
		return nil
	}
	return commands.Refuse(commands.Unreachable, "%s", state)
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

func (s *Spoke) getConnections(w http.ResponseWriter, r *http.Request) {
	list, err := s.DB.Connections(r.Context())
	if err != nil {
		control.Error(w, err)
		return
	}
	control.JSON(w, list)
}

func (s *Spoke) getConnection(w http.ResponseWriter, r *http.Request) {
	conn, _ := s.hub.get()
	if name := r.PathValue("name"); name != conn.Name && name != conn.ID {
		control.Error(w, commands.Refuse(commands.NotFound, "no connection %q", name).Hinting("see: spawnmesh connections list"))
		return
	}
	control.JSON(w, conn)
}

// postConnection is the host's own right: to stop obeying, for a while or for
// good. What runs is ended when the connection is revoked.
func (s *Spoke) postConnection(w http.ResponseWriter, r *http.Request) {
	conn, _ := s.hub.get()
	var req struct {
		Reason string `json:"reason"`
	}
	to, known := store.Verbs[r.PathValue("state")]
	err := control.Decode(r, &req)
	name := r.PathValue("name")
	switch {
	case err != nil:
	case name != conn.Name && name != conn.ID:
		err = commands.Refuse(commands.NotFound, "no connection %q", name).Hinting("see: spawnmesh connections list")
	case !known:
		err = commands.Refuse(commands.NotFound, "a connection can be suspended, resumed and revoked")
	case req.Reason == "" && to != store.Active:
		err = commands.Refuse(commands.Validation, "this needs a reason").Hinting("add --reason \"why\"; it is recorded")
	}
	if err == nil {
		conn, err = s.setState(context.WithoutCancel(r.Context()), conn, to, req.Reason, control.Caller(r))
	}
	if err != nil {
		control.Error(w, err)
		return
	}
	control.JSON(w, conn)
}

// setState commits the state first: from then on no transaction accepts what it
// forbids.
func (s *Spoke) setState(ctx context.Context, c store.Connection, to store.ConnState, reason, actor string) (store.Connection, error) {
	c, err := s.DB.SetConnectionState(ctx, c.ID, to, reason, actor)
	if err != nil {
		return c, err
	}
	s.hub.mu.Lock()
	s.hub.conn = c
	s.hub.mu.Unlock()
	if to != store.Revoked {
		return c, nil
	}
	s.unlink() // a revoked hub hears nothing more, no heartbeat either
	fences, err := s.backlog.RevokeWork(ctx, c.ID)
	if err != nil {
		return c, err
	}
	for _, k := range fences {
		s.live.kill(k)
	}
	return c, nil
}

func (s *Spoke) getAudit(w http.ResponseWriter, r *http.Request) {
	list, err := s.DB.AuditTrail(r.Context(), r.URL.Query().Get("object"), 1000)
	if err != nil {
		control.Error(w, err)
		return
	}
	control.JSON(w, list)
}
