package node

import (
	"net/http"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/store"
)

// find returns the connection that a request names, whichever role it belongs to.
func (n *Node) find(r *http.Request) (federation.Status, error) {
	return n.board.Find(r.PathValue("name"), n.authorities()...)
}

// authorities are those of the connections that are this instance's business.
func (n *Node) authorities() (list []store.Authority) {
	if n.Spoke != nil {
		list = append(list, store.Obeys)
	}
	if n.Hub != nil {
		list = append(list, store.Commands)
	}
	return list
}

// listConnections answers with the hubs, and then the spokes.
func (n *Node) listConnections(w http.ResponseWriter, r *http.Request) {
	list := make([]any, 0)
	if n.Spoke != nil {
		hubs, err := n.Spoke.Hubs(r.Context())
		if err != nil {
			control.Error(w, err)
			return
		}
		for _, v := range hubs {
			list = append(list, v)
		}
	}
	if n.Hub != nil {
		spokes, err := n.Hub.Spokes(r.Context())
		if err != nil {
			control.Error(w, err)
			return
		}
		for _, v := range spokes {
			list = append(list, v)
		}
	}
	control.JSON(w, list)
}

func (n *Node) getConnection(w http.ResponseWriter, r *http.Request) {
	s, err := n.find(r)
	if err != nil {
		control.Error(w, err)
		return
	}
	if s.Authority == store.Commands {
		v := hub.ViewOf(s)
		v.Queues = n.board.QueuesOf(r.Context(), s.Connection)
		control.JSON(w, v)
		return
	}
	v, err := n.Spoke.Hub(r.Context(), s)
	control.Reply(w, v, err)
}

// postConnection is an operator's right on both sides: to stop commanding or
// obeying, for a while or for good.
func (n *Node) postConnection(w http.ResponseWriter, r *http.Request) {
	change := federation.Change{Verb: r.PathValue("verb"), Actor: control.Caller(r).String()}
	var c federation.Changed
	err := control.Decode(r, &struct{ Reason *string }{&change.Reason})
	if err == nil {
		c, err = n.board.Change(r.Context(), r.PathValue("name"), change, n.authorities()...)
	}
	control.Reply(w, c, err)
}

// postResync compares the histories of a connection anew and answers when they
// agree.
func (n *Node) postResync(w http.ResponseWriter, r *http.Request) {
	v, err := n.board.Resync(r.Context(), r.PathValue("name"), control.Caller(r).String(), n.authorities()...)
	control.Reply(w, v, err)
}

// postGrant changes what a hub may ask for here, as far as the request says.
func (n *Node) postGrant(w http.ResponseWriter, r *http.Request) {
	var change spoke.GrantChange
	var g store.GrantTerms
	s, err := n.find(r)
	if n.Spoke == nil || err == nil && s.Authority == store.Commands {
		err = commands.Refuse(commands.Validation, "what a hub may ask for is decided by the host of the spoke").Hinting("there: spawnmesh connections grant NAME")
	}
	if err == nil {
		err = control.Decode(r, &change)
	}
	if err == nil {
		g, err = n.Spoke.SetGrant(r.Context(), s.ID, change, control.Caller(r).String())
	}
	control.Reply(w, g, err)
}
