package node

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store"
)

// An agent is one that runs elsewhere by our order, or here by another's.
type agent struct {
	made time.Time
	view any
}

// listAgents answers with the newest agents: those that this instance ordered, and
// those that run or ran here.
func (n *Node) listAgents(w http.ResponseWriter, r *http.Request) {
	t, err := control.ReadAgentTerms(r)
	var list []agent
	if err == nil {
		list, err = n.newest(r.Context(), t)
	}
	views := make([]any, len(list))
	for i, a := range list {
		views[i] = a.view
	}
	control.Reply(w, views, err)
}

func (n *Node) newest(ctx context.Context, t control.AgentTerms) (list []agent, err error) {
	obeys := n.Spoke != nil && (n.Hub == nil || len(n.board.Statuses(store.Obeys)) > 0)
	if n.Hub != nil && (t.Hub == "" || !obeys) {
		mirrors, err := n.Hub.Agents(ctx, t)
		if err != nil {
			return nil, err
		}
		for _, m := range mirrors {
			list = append(list, agent{m.CreatedAt, m})
		}
	}
	if obeys && (t.Spoke == "" || n.Hub == nil) {
		here, err := n.Spoke.Agents(ctx, t)
		if err != nil {
			return nil, err
		}
		for _, v := range here {
			list = append(list, agent{v.CreatedAt, v})
		}
	}
	slices.SortStableFunc(list, func(x, y agent) int { return y.made.Compare(x.made) })
	return list[:min(len(list), t.Limit)], nil
}

// ofOneRole hands a request about an agent to the role that knows it. Where both
// know one by the same text, a person has to say more.
func (n *Node) ofOneRole(ordered, here *http.ServeMux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if len(n.board.Statuses(store.Obeys)) == 0 { // nobody has ever ordered anything here
			ordered.ServeHTTP(w, r)
			return
		}
		_, away := n.Hub.Find(r.Context(), r.PathValue("id"))
		_, local := n.Spoke.Find(r.Context(), r.PathValue("id"))
		switch {
		case away == nil && local == nil:
			control.Error(w, commands.Refuse(commands.Ambiguous, "%s fits an agent that runs here and one that runs on a spoke", r.PathValue("id")).
				Hinting("use more of the id; see").Running("agents", "-o", "wide"))
		case commands.CodeOf(away) == commands.NotFound && commands.CodeOf(local) != commands.NotFound:
			if _, pattern := here.Handler(r); pattern == "" {
				control.Error(w, commands.Refuse(commands.Validation, "agent %s runs here, by order of a hub: this is asked of spokes", r.PathValue("id")))
				return
			}
			here.ServeHTTP(w, r)
		default:
			ordered.ServeHTTP(w, r)
		}
	}
}
