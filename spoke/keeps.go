package spoke

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
)

// Keeps says what keeps orders of a hub from being done here, what weighs most first: each reason as what the hub does, or what is
// done to it.
func (v HubView) Keeps() []commands.WhyReason {
	list := v.Inactive()
	if v.State.Ended() {
		return list
	}
	if !v.Linked && v.LinkError != "" {
		list = append(list, commands.WhyReason{Code: commands.CauseLink, Text: "is not linked: " + v.LinkError, Since: v.DownSince, Fix: "it is dialled again by itself"})
	}
	return slices.Concat(list, v.Declined(), v.Heartbeats(), v.Freezes(), v.Faults())
}

// Keeps says what keeps agents of every hub from being started here now, what weighs most first: each reason as what this spoke does.
// Nothing before it works.
func (s *Spoke) Keeps(ctx context.Context) (list []commands.WhyReason, err error) {
	if !s.working.Load() {
		return nil, nil
	}
	add := func(is bool, r commands.WhyReason) {
		if is {
			list = append(list, r)
		}
	}
	add(s.stopping.Load(), commands.WhyReason{Code: commands.CauseStopping, Text: "is stopping, and starts nothing more", Fix: "it goes on when it is started again"})
	held, err := s.DB.FrozenHere(ctx, "")
	if err != nil {
		return list, err
	}
	if held != nil {
		since := time.UnixMilli(held.Since)
		add(true, commands.WhyReason{Code: commands.CauseFreeze, Text: "starts nothing: " + held.Why(), Since: &since,
			Fix: commands.ShellLine([]string{"spawnmesh", "unfreeze", "--scope", held.Scope, "--reason", "WHY"})})
	}
	rules, running := s.Policy.Now(), s.live.count()
	add(len(rules.Runtimes) == 0, commands.WhyReason{Code: commands.CausePolicy, Text: "starts nothing: its policy lets nothing run", Fix: "spawnmesh spoke policy init --preset commands"})
	add(s.isolation() == "", commands.WhyReason{Code: commands.CauseIsolation, Text: "starts no program: it cannot confine agents as its policy demands", Fix: "to see why: spawnmesh doctor"})
	told := s.ready.forHubs()
	add(told.Held != nil, commands.WhyReason{Code: commands.CauseLane, Text: "starts nothing: lane default, of agents, is paused or disabled", Since: told.Held, Fix: "spawnmesh lane resume default"})
	add(told.Limited > 0, commands.WhyReason{Code: commands.CauseLimit, Text: "waits with agents of accounts that have met a limit of their provider: " + strconv.Itoa(told.Limited), Figure: commands.Figure(told.Limited), Fix: "spawnmesh spoke policy reload"})
	lack := s.lacksRoom()
	add(lack != "", commands.WhyReason{Code: commands.CauseDisk, Text: "starts nothing: its disk " + lack, Fix: "make room, or lower that limit in the policy"})
	add(running >= s.Slots, commands.WhyReason{Code: commands.CauseSlots, Text: "has all of its " + strconv.Itoa(s.Slots) + " slots in use; what is ordered waits here", Figure: commands.Figure(s.Slots),
		Fix: "it goes on when an agent ends; to have more, start it with --slots N"})
	return list, nil
}
