package hub

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Description is what a hub says about itself to its operator.
type Description struct {
	Name string `json:"name"` // what it calls itself towards spokes
	Link string `json:"link,omitempty"`
}

// Describe returns what to say about this hub, and whether its message server
// works.
func (h *Hub) Describe(ctx context.Context) (*Description, []control.Check) {
	c := control.NewCheck("nats", h.server.Healthy(ctx))
	if lost := h.server.Lost(); c.OK && lost != "" {
		c.Note = fmt.Sprintf("%s: at the start %s; what is not confirmed was sent again", commands.StreamLoss, lost)
	}
	return &Description{h.Name, h.LinkAddress()}, []control.Check{c}
}

// Routes are what an operator may ask of a hub about its agents.
func (h *Hub) Routes() *http.ServeMux {
	m := http.NewServeMux()
	m.HandleFunc("POST /v1/agents", h.postAgent)
	m.HandleFunc("GET /v1/agents/{id}", h.getAgent)
	m.HandleFunc("POST /v1/agents/{id}/kill", h.killAgent)
	m.HandleFunc("POST /v1/agents/{id}/ask", h.askAgent)
	m.HandleFunc("GET /v1/agents/{id}/logs", h.getLogs)
	return m
}

func (h *Hub) postAgent(w http.ResponseWriter, r *http.Request) {
	var req SpawnRequest
	err := control.Decode(r, &req)
	var out SpawnAnswer
	if err == nil {
		out, err = h.Spawn(r.Context(), req, control.Caller(r).String())
	}
	control.Reply(w, out, err)
}

// Agents returns the agents that this hub has ordered, newest first.
func (h *Hub) Agents(ctx context.Context, t control.AgentTerms) ([]store.Mirror, error) {
	if t.Hub != "" {
		return nil, commands.Refuse(commands.Validation, "this instance is a hub: its agents run on spokes").Hinting("to see those of one spoke").Running("agents", "--spoke", "NAME")
	}
	return h.DB.ListMirrors(ctx, t.Spoke, t.Open, t.Limit)
}

// getAgent answers with an agent as it is; with wait=D only when it has changed
// after since, has ended, or D has passed.
func (h *Hub) getAgent(w http.ResponseWriter, r *http.Request) {
	var m store.Mirror
	var err error
	if wait, _ := time.ParseDuration(r.URL.Query().Get("wait")); wait > 0 {
		ctx, done := context.WithTimeout(r.Context(), min(wait, time.Minute))
		defer done()
		m, err = h.await(ctx, r.PathValue("id"), r.URL.Query().Get("since"))
	}
	if err == nil && m.Task == "" {
		m, err = h.Find(r.Context(), r.PathValue("id"))
	}
	if err != nil {
		control.Error(w, err)
		return
	}
	view := viewOf(m)
	if err == nil && r.URL.Query().Get("receipts") == "true" {
		if view.Receipts, err = h.DB.Receipts(r.Context(), m.Task); err == nil {
			view.Output, err = h.outputOf(r.Context(), m.Task)
		}
	}
	control.Reply(w, view, err)
}

func viewOf(m store.Mirror) AgentView {
	r, _ := commands.ReadResult(m.Result)
	return AgentView{Mirror: m, ExitCode: r.ExitCode()}
}

func (h *Hub) killAgent(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Reason  string `json:"reason"`
		GraceMS int64  `json:"grace_ms"`
	}
	err := control.Decode(r, &req)
	var m Killed
	if err == nil {
		m, err = h.Kill(r.Context(), r.PathValue("id"), req.Reason, time.Duration(req.GraceMS)*time.Millisecond, control.Caller(r).String())
	}
	control.Reply(w, m, err)
}

func (h *Hub) askAgent(w http.ResponseWriter, r *http.Request) {
	ctx, done := context.WithTimeout(r.Context(), 10*time.Second)
	defer done()
	state, err := h.Ask(ctx, r.PathValue("id"), control.Caller(r).String())
	control.Reply(w, state, err)
}
