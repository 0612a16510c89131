package hub

import (
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/store"
)

// Observe adds to agents what they are at, as the newest heartbeats of their spokes tell it: verdict, progress, memory and
// processor time.
func (h *Hub) Observe(views ...*AgentView) {
	spokes := map[string]*observed{}
	for _, s := range h.board.Statuses(store.Commands) {
		spokes[s.ID] = &observed{status: s, spoke: ViewOf(s)}
	}
	for _, v := range views {
		s := spokes[v.Conn]
		if s == nil || v.State.Terminal() {
			continue
		}
		e := commands.Evidence{State: v.State, Reason: v.Reason, Unheard: s.unheard(), Patience: h.HungAfter}
		if b := s.agent(v.Task, v.Attempt); b != nil && (v.State == commands.Running || v.State == commands.AwaitingInput || v.State == commands.Paused) {
			v.Progress, v.Memory, v.CPUMS, v.Overrun = b.Progress, b.RSS, b.CPUMS, b.Overrun
			if b.State != commands.Paused { // else it says nothing of what the agent does since it was resumed
				e.Sign, e.Slept, e.Idle = b.Sign, time.Duration(b.SleptMS)*time.Millisecond, s.idle(b)
			}
		}
		v.Verdict = e.Verdict()
	}
}

// observed is a spoke whose agents are looked at.
type observed struct {
	status federation.Status
	spoke  SpokeView
	agents map[string]*commands.AgentBeat // of its last heartbeat, by task; made when the first is asked for
}

// agent is what the last heartbeat says of an attempt; nil = nothing.
func (o *observed) agent(task string, attempt int) *commands.AgentBeat {
	if o.status.Beat == nil {
		return nil
	}
	if o.agents == nil {
		o.agents = map[string]*commands.AgentBeat{}
		list := o.status.Beat.Body.Agents
		for i := range list {
			o.agents[list[i].Task] = &list[i]
		}
	}
	b := o.agents[task]
	if b == nil || b.Attempt != attempt {
		return nil
	}
	return b
}

// idle is for how long an agent of the last heartbeat has shown no sign by now.
func (o *observed) idle(b *commands.AgentBeat) time.Duration {
	return time.Duration(b.IdleMS)*time.Millisecond + time.Since(o.status.Beat.At)
}

// unheard says why what a spoke said last may be old; "" = it is of now.
func (o *observed) unheard() string {
	c := o.spoke
	if c.reached() {
		return ""
	}
	said := "the link is down"
	switch {
	case c.State != store.Active:
		said = fmt.Sprintf("the connection is %s", c.State)
	case c.Linked:
		said = "the link is up and nothing is heard over it"
	}
	if c.LastSeen == nil {
		return fmt.Sprintf("%s; %s was never heard", said, c.Name)
	}
	return fmt.Sprintf("%s; %s was heard last %s ago", said, c.Name, commands.Lasting(max(time.Second, time.Since(*c.LastSeen).Round(time.Second))))
}
