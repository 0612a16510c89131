package federation

import (
	"fmt"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// Declined says which orders the side that obeys does not take, and why. A hub knows it by the last heartbeat of its spoke, while that is linked.
func (s Standing) Declined() (list []commands.WhyReason) {
	if s.Authority == store.Commands && !s.Linked {
		return nil
	}
	var kinds []string
	for _, d := range s.Declines {
		if d.Code == commands.DeclinesKind {
			kinds = append(kinds, d.What)
			continue
		}
		r := s.declined(d)
		if d.Since > 0 {
			since := time.UnixMilli(d.Since)
			r.Since = &since
		}
		list = append(list, r)
	}
	if len(kinds) > 0 {
		r := commands.WhyReason{Code: commands.CauseGrant, Fix: s.regrant("--kinds", strings.Join(store.FullGrant().Kinds, ","))}
		r.Text = s.said("may not order "+strings.Join(kinds, ", ")+": its grant does not allow that", "does not take "+strings.Join(kinds, ", ")+" of this hub: the grant there does not allow that")
		list = append(list, r)
	}
	return list
}

// declined is a reason that is not about kinds of orders.
func (s Standing) declined(d commands.Decline) (r commands.WhyReason) {
	switch d.Code {
	case commands.DeclinesExpired:
		r.Code, r.Fix = commands.CauseGrant, s.regrant("--expires", "never")
		r.Text = s.said("may order nothing: its grant has expired", "takes nothing of this hub: the grant there has expired")
	case commands.DeclinesPolicy:
		r.Code, r.Fix = commands.CausePolicy, s.said("allow a runtime of the grant, and commands, in policy.yaml; then: spawnmesh spoke policy reload", "its host decides, in its policy.yaml")
		r.Text = s.said("may start nothing: the policy of this host allows nothing that its grant does", "starts nothing for this hub: the policy of its host allows nothing that the grant there does")
	case commands.DeclinesLane:
		r.Code, r.Fix = commands.CauseLane, s.here(commands.Line("lane", "resume", "default"))
		r.Text = s.said("waits with what it orders: the lane of its agents, default, is paused or disabled here", "starts nothing: the lane of its agents is paused or disabled there; what is ordered waits")
	case commands.DeclinesLimit:
		r.Code, r.Fix = commands.CauseLimit, "it goes on by itself; at once "+s.said("with: ", commands.OnItsHost)+commands.Line("spoke", "policy", "reload")
		r.Text = s.said("waits with agents of an account that has met a limit of its provider", "has an account that has met a limit of its provider; agents of that account wait")
	default:
		r.Code, r.Fix = commands.CauseState, commands.OnItsHost+commands.Line("doctor")
		r.Text = fmt.Sprintf("does not take all that this hub orders (%s)", strings.TrimSpace(d.Code+" "+d.What))
	}
	return r
}

// said is one of two texts: of what is done to a hub, on the host of the spoke, and of what a spoke does.
func (s Standing) said(here, there string) string {
	if s.Authority == store.Obeys {
		return here
	}
	return there
}

// regrant is the command that changes the grant, as it is typed on the host of the spoke.
func (s Standing) regrant(words ...string) string {
	return s.here(commands.Line(append([]string{"connections", "grant", s.said(s.Name, s.ID)}, words...)...))
}

// here is a command line that is typed on the host of the spoke.
func (s Standing) here(line string) string {
	return s.said(line, "its host decides; "+commands.OnItsHost+line)
}
