package hub

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A WhyRequest asks why an agent is where it is.
type WhyRequest struct {
	Agent string        // as a person names it
	Ask   time.Duration // how long its spoke may take to answer; 0 = it is not asked
	Actor string
	Brief bool // without the words of agents, and of what was ordered
}

// Explain says why an agent is where it is. The spoke of one that waits there is asked, and says more than its heartbeats.
func (h *Hub) Explain(ctx context.Context, r WhyRequest) (AgentView, []commands.WhyReason, error) {
	v, at, err := h.standing(ctx, r.Agent)
	if err != nil {
		return v, nil, err
	}
	if r.Brief {
		v = v.Brief()
	}
	list := Why(v, at)
	switch {
	case r.Brief:
		return v, list, nil
	case v.State == commands.AwaitingInput:
		asked, err := h.questionsOf(ctx, v.Task)
		if len(asked) > 0 {
			list = append(asked, list[1:]...)
		}
		return v, list, err
	case r.Ask > 0 && v.State == commands.Queued && at.current(): // one that its spoke has not accepted may be left there
		return v, merge(list, h.fromSpoke(ctx, r, v)), nil
	}
	return v, list, nil
}

// standing is an agent with all that is known of how it stands, and its spoke.
func (h *Hub) standing(ctx context.Context, text string) (v AgentView, at SpokeView, err error) {
	if v, err = h.Agent(ctx, text, 0, ""); err == nil {
		err = h.InLine(ctx, &v)
	}
	if err == nil {
		err = h.Cancelling(ctx, &v)
	}
	if err == nil {
		err = h.retrying(ctx, &v)
	}
	if err != nil {
		return v, at, err
	}
	s, _ := h.board.Status(v.Conn)
	at, err = h.SpokeOf(ctx, s)
	h.Observe(&v)
	return v, at, err
}

// fromSpoke are the reasons that the spoke of an agent says now; none where it does not answer in time.
func (h *Hub) fromSpoke(ctx context.Context, r WhyRequest, v AgentView) []commands.WhyReason {
	asking, done := context.WithTimeout(ctx, r.Ask)
	defer done()
	state, err := h.AskStatus(asking, v.Task, r.Actor)
	switch {
	case commands.CodeOf(err) == commands.Grant: // it answers nothing else either
		return []commands.WhyReason{{Code: commands.CauseGrant, Text: strings.TrimPrefix(err.Error(), v.Spoke+" says: "), Where: v.Spoke, Fix: "spawnmesh connections grant HUB --expires never"}}
	case err != nil:
		h.Log.DebugContext(ctx, "asking a spoke why an agent waits", "id", v.Task, "connection", v.Spoke, "err", err)
		return nil
	}
	list := state.Said(v.Spoke)
	for i := range list {
		list[i].Text, list[i].Fix = commands.OneLine(list[i].Text), commands.OneLine(list[i].Fix)
	}
	return list
}

// guessed is what the hub takes from heartbeats. What it knows itself no spoke takes back: an end that it has ordered, a clock
// that it has measured, a connection.
var guessed = []commands.Cause{commands.CauseState, commands.CauseSlots, commands.CauseStopping, commands.CauseHost, commands.CauseIsolation}

// declined are the causes that a spoke tells in its heartbeats and again where it is asked. Its answer is the newer of the two: a
// cause that it leaves out is over.
var declined = []commands.Cause{commands.CauseGrant, commands.CausePolicy, commands.CauseLane}

// merge puts what a spoke says in place of what its heartbeats let the hub guess.
func merge(known, said []commands.WhyReason) []commands.WhyReason {
	if len(said) == 0 {
		return known
	}
	known = slices.DeleteFunc(known, func(r commands.WhyReason) bool {
		return r.Code == commands.CauseState || slices.Contains(declined, r.Code) || slices.Contains(guessed, r.Code) && slices.ContainsFunc(said, func(s commands.WhyReason) bool { return s.Code == r.Code })
	})
	return append(known, said...)
}

// questionsOf says which questions of an agent are open.
func (h *Hub) questionsOf(ctx context.Context, task string) ([]commands.WhyReason, error) {
	all, err := h.DB.Inquiries(ctx, task)
	return store.OpenReasons(all), err
}
