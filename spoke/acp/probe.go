package acp

import (
	"context"

	"github.com/spawnmesh/spawnmesh/spoke/acp/wire"
)

// A Report says what a coding agent can do, and whether somebody is logged in to it.
type Report struct {
	Protocol int    `json:"protocol"`        // the version that it speaks
	Agent    string `json:"agent,omitempty"` // its name and version, as it says
	Load     bool   `json:"load_session"`    // it can take up a session, with what was said in it
	Resume   bool   `json:"resume_session"`  // it can take up a session
	LoggedIn bool   `json:"logged_in"`
}

// Probe greets a coding agent and begins a session, which is given nothing to do. The problem is why it cannot work; "" = it can.
func (a *Adapter) Probe(ctx context.Context) (v Report, problem string) {
	a.fill()
	r := newRun(a)
	if e, ok := r.start(ctx); !ok {
		return v, e.reason
	}
	defer r.agent.stop()
	defer r.conn.Close()
	defer r.terminals.close()
	defer r.files.root.Close()
	begin, done := context.WithTimeout(ctx, r.Begin)
	defer done()
	err := r.initialize(begin)
	v.Protocol = int(r.can.ProtocolVersion)
	if i := r.can.AgentInfo; i != nil {
		v.Agent = label(or(i.Title, i.Name) + " " + i.Version)
	}
	if err != nil {
		return v, r.failed(ctx, wire.Initialize, err).reason
	}
	if c := r.can.AgentCapabilities; c != nil {
		v.Load, v.Resume = c.LoadSession, c.SessionCapabilities != nil && c.SessionCapabilities.Resume != nil
	}
	if method, err := r.open(begin); err != nil {
		e := r.failed(ctx, method, err)
		v.LoggedIn = e.code != Unavailable
		return v, e.reason
	}
	v.LoggedIn = true
	return v, ""
}
