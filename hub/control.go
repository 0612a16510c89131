package hub

import (
	"context"
	"fmt"
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

// Agents returns the agents that this hub has ordered, newest first, and before which id the list goes on.
func (h *Hub) Agents(ctx context.Context, t control.AgentTerms) (views []AgentView, next string, err error) {
	if t.Hub != "" {
		return nil, "", commands.Refuse(commands.Validation, "this instance is a hub: its agents run on spokes").Hinting("to see those of one spoke").Running("agents", "--spoke", "NAME")
	}
	list, next, err := h.DB.ListMirrors(ctx, store.MirrorTerms{Spoke: t.Spoke, Open: t.Open, Archived: t.Archived, Labels: t.Labels, Before: t.Before, Limit: t.Limit})
	views = make([]AgentView, len(list))
	seen := make([]*AgentView, len(list))
	for i, m := range list {
		views[i] = viewOf(m)
		seen[i] = &views[i]
	}
	h.Observe(seen...)
	return views, next, err
}

// Agent returns the agent that a person means as it is; with wait only when it has changed
// after the state since, has ended, or that time has passed.
func (h *Hub) Agent(ctx context.Context, text string, wait time.Duration, since string) (AgentView, error) {
	var m store.Mirror
	if wait > 0 {
		task, err := h.named(ctx, text) // however short the wait is
		if err != nil {
			return AgentView{}, err
		}
		waiting, done := context.WithTimeout(ctx, wait)
		defer done()
		if m, err = h.await(waiting, task, since); err != nil || m.Task != "" {
			return viewOf(m), err
		}
	}
	m, err := h.Find(ctx, text)
	return viewOf(m), err
}

// Received adds to an agent what was received about it.
func (h *Hub) Received(ctx context.Context, v *AgentView) (err error) {
	if v.Receipts, err = h.DB.Receipts(ctx, v.Task); err == nil {
		v.Output, err = h.outputOf(ctx, v.Task)
	}
	return err
}

// InLine adds to an agent what stands before it on its spoke.
func (h *Hub) InLine(ctx context.Context, v *AgentView) (err error) {
	if v.State == commands.Queued && v.AcceptedAt != nil && v.Attempt == 0 {
		v.Before, err = h.DB.Before(ctx, v.Mirror)
	}
	return err
}

// Cancelling adds to an agent whose end is ordered whether its spoke has taken the order, or refused it.
func (h *Hub) Cancelling(ctx context.Context, v *AgentView) error {
	kill := store.ReadKill(v.Kill)
	if refused := store.ReadKill(v.RefusedKill); kill == nil && refused != nil && refused.Cancel != "" {
		v.ProtocolCancel = "refused"
	}
	if kill == nil {
		return nil
	}
	v.ProtocolCancel = "unavailable"
	taken, err := h.DB.Taken(ctx, kill.Command)
	if taken || v.Result != nil {
		v.ProtocolCancel = "sent"
	}
	return err
}

func viewOf(m store.Mirror) AgentView {
	r, _ := commands.ReadResult(m.Result)
	return AgentView{Mirror: m, ExitCode: r.ExitCode()}
}
