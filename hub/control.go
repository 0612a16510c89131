package hub

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// An Instance describes a running instance to its operator.
type Instance struct {
	Role        string             `json:"role"`
	ID          signing.InstanceID `json:"id"`
	Name        string             `json:"name"`
	Fingerprint string             `json:"fingerprint"`
	Version     string             `json:"version"`
	Pid         int                `json:"pid"`
	Link        string             `json:"link,omitempty"`
	Health      []control.Check    `json:"health"`
}

// control routes what an operator may ask of a hub.
func (h *Hub) control() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /v1/instance", h.getInstance)
	m.HandleFunc("POST /v1/agents", h.postAgent)
	m.HandleFunc("GET /v1/agents", h.listAgents)
	m.HandleFunc("GET /v1/agents/{id}", h.getAgent)
	m.HandleFunc("POST /v1/agents/{id}/kill", h.killAgent)
	m.HandleFunc("POST /v1/agents/{id}/ask", h.askAgent)
	m.HandleFunc("GET /v1/agents/{id}/logs", h.getLogs)
	m.HandleFunc("POST /v1/invites", h.postInvite)
	m.HandleFunc("GET /v1/invites", h.listInvites)
	m.HandleFunc("POST /v1/invites/{id}/revoke", h.postRevokeInvite)
	m.HandleFunc("GET /v1/connections", h.listConnections)
	m.HandleFunc("GET /v1/connections/{name}", h.getConnection)
	m.HandleFunc("POST /v1/connections/{name}/{state}", h.postConnection)
	m.HandleFunc("POST /v1/connections/{name}/resync", h.postResync)
	m.HandleFunc("GET /v1/keys", h.getKeys)
	m.HandleFunc("POST /v1/keys", h.postKeys)
	m.HandleFunc("POST /v1/connections/{name}/grant", func(w http.ResponseWriter, _ *http.Request) {
		control.Error(w, commands.Refuse(commands.Validation, "what a hub may ask for is decided by the host of the spoke").Hinting("there: spawnmesh connections grant NAME"))
	})
	m.HandleFunc("GET /v1/audit", h.getAudit)
	return m
}

func reply(w http.ResponseWriter, v any, err error) {
	if err != nil {
		control.Error(w, err)
		return
	}
	control.JSON(w, v)
}

func (h *Hub) getInstance(w http.ResponseWriter, r *http.Request) {
	ctx, done := context.WithTimeout(r.Context(), 5*time.Second)
	defer done()
	_, dbErr := h.DB.Now(ctx)
	health := []control.Check{control.NewCheck("postgres", dbErr), control.NewCheck("nats", h.server.Healthy(ctx))}
	for _, q := range h.board.Unread(ctx) {
		health = append(health, control.Check{Name: q.Name, Problem: q.Problem})
	}
	for _, s := range h.board.Statuses(store.Commands) {
		if err := s.KeyError(); err != nil {
			health = append(health, control.NewCheck("key for "+s.Name, err))
		}
	}
	control.JSON(w, Instance{Role: "hub", ID: h.Keys.InstanceID(), Name: h.Name, Fingerprint: signing.Fingerprint(h.Keys.Identity.Public()),
		Version: h.Version, Pid: os.Getpid(), Link: h.link, Health: health})
}

func (h *Hub) postAgent(w http.ResponseWriter, r *http.Request) {
	var req SpawnRequest
	err := control.Decode(r, &req)
	var out SpawnAnswer
	if err == nil {
		out, err = h.Spawn(r.Context(), req, control.Caller(r))
	}
	reply(w, out, err)
}

func (h *Hub) listAgents(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit, err := control.Limit(q.Get("limit"))
	if err != nil {
		control.Error(w, err)
		return
	}
	if q.Get("hub") != "" {
		control.Error(w, commands.Refuse(commands.Validation, "this instance is a hub: its agents run on spokes").Hinting("to see those of one spoke: spawnmesh agents --spoke NAME"))
		return
	}
	list, err := h.DB.ListMirrors(r.Context(), q.Get("spoke"), q.Get("open") == "true", limit)
	reply(w, list, err)
}

// getAgent answers with an agent as it is; with wait=D only when it has changed
// after since, has ended, or D has passed.
func (h *Hub) getAgent(w http.ResponseWriter, r *http.Request) {
	m, err := h.find(r.Context(), r.PathValue("id"))
	if err != nil {
		control.Error(w, err)
		return
	}
	if wait, _ := time.ParseDuration(r.URL.Query().Get("wait")); wait > 0 {
		ctx, done := context.WithTimeout(r.Context(), min(wait, time.Minute))
		defer done()
		m, err = h.await(ctx, m, r.URL.Query().Get("since"))
	}
	view := viewOf(m)
	if err == nil && r.URL.Query().Get("receipts") == "true" {
		if view.Receipts, err = h.DB.Receipts(r.Context(), m.Task); err == nil {
			view.Output, err = h.outputOf(r.Context(), m.Task)
		}
	}
	reply(w, view, err)
}

func viewOf(m store.Mirror) AgentView {
	v := AgentView{Mirror: m}
	var r commands.Result
	if m.Result != nil && json.Unmarshal(m.Result, &r) == nil && r.Exit.Code >= 0 && r.Outcome != "" {
		v.ExitCode = &r.Exit.Code
	}
	return v
}

// await returns the mirror of m once it differs from the state since, or ended.
func (h *Hub) await(ctx context.Context, m store.Mirror, since string) (store.Mirror, error) {
	news := h.watch.add(m.Task)
	defer h.watch.remove(m.Task, news)
	for {
		list, err := h.DB.FindMirrors(context.WithoutCancel(ctx), m.Task)
		if err != nil || len(list) != 1 {
			return m, unavailable(err)
		}
		m = list[0]
		if m.State.Terminal() || since != "" && string(m.State) != since {
			return m, nil
		}
		select {
		case <-ctx.Done():
			return m, nil
		case <-news:
		case <-time.After(2 * time.Second): // another process of this hub may have moved it
		}
	}
}

func (h *Hub) killAgent(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Reason  string `json:"reason"`
		GraceMS int64  `json:"grace_ms"`
	}
	err := control.Decode(r, &req)
	var m store.Mirror
	if err == nil {
		m, err = h.Kill(r.Context(), r.PathValue("id"), req.Reason, time.Duration(req.GraceMS)*time.Millisecond, control.Caller(r))
	}
	reply(w, m, err)
}

func (h *Hub) askAgent(w http.ResponseWriter, r *http.Request) {
	ctx, done := context.WithTimeout(r.Context(), 10*time.Second)
	defer done()
	state, err := h.Ask(ctx, r.PathValue("id"), control.Caller(r))
	reply(w, state, err)
}

func (h *Hub) postInvite(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Name  string `json:"name"`
		TTLMS int64  `json:"ttl_ms"`
	}
	err := control.Decode(r, &req)
	var out Invitation
	if err == nil {
		out, err = h.Invite(r.Context(), req.Name, time.Duration(req.TTLMS)*time.Millisecond, control.Caller(r))
	}
	reply(w, out, err)
}

func (h *Hub) listInvites(w http.ResponseWriter, r *http.Request) {
	list, err := h.DB.Invites(r.Context())
	reply(w, list, unavailable(err))
}

func (h *Hub) postRevokeInvite(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Reason string `json:"reason"`
	}
	err := control.Decode(r, &req)
	var v store.InviteView
	if err == nil {
		v, err = h.revokeInvite(r.Context(), r.PathValue("id"), req.Reason, control.Caller(r))
	}
	reply(w, v, err)
}

func (h *Hub) listConnections(w http.ResponseWriter, r *http.Request) {
	list, err := h.Spokes(r.Context())
	reply(w, list, err)
}

func (h *Hub) getConnection(w http.ResponseWriter, r *http.Request) {
	s, err := h.board.Find(store.Commands, r.PathValue("name"))
	if err != nil {
		control.Error(w, err)
		return
	}
	v := viewOfSpoke(s)
	v.Queues = h.board.Queues(r.Context())[s.ID]
	control.JSON(w, v)
}

func (h *Hub) postConnection(w http.ResponseWriter, r *http.Request) {
	change := federation.Change{Verb: r.PathValue("state"), Actor: control.Caller(r)}
	var c store.Connection
	err := control.Decode(r, &struct{ Reason *string }{&change.Reason})
	if err == nil {
		c, err = h.board.Change(r.Context(), store.Commands, r.PathValue("name"), change)
	}
	reply(w, c, err)
}

// postResync compares the histories of a connection anew and answers when they
// agree.
func (h *Hub) postResync(w http.ResponseWriter, r *http.Request) {
	v, err := h.board.Resync(r.Context(), store.Commands, r.PathValue("name"), control.Caller(r))
	reply(w, v, err)
}

func (h *Hub) getAudit(w http.ResponseWriter, r *http.Request) {
	list, err := h.DB.AuditTrail(r.Context(), r.URL.Query().Get("object"), 1000)
	reply(w, list, err)
}
