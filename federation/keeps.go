package federation

import (
	"fmt"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// InboxNext is what makes room for messages of peers.
const InboxNext = "start this instance with a larger --inbox-per-peer or --inbox-total, or give up the signed bytes of old messages: spawnmesh retention envelopes 7d"

// Inactive says that the connection does not work on one of its sides; nothing where it does.
func (s Standing) Inactive() []commands.WhyReason {
	r := commands.WhyReason{Code: commands.CauseConnection, Since: &s.Since}
	switch {
	case s.State == store.Suspended:
		r.Text, r.Fix = fmt.Sprintf("is suspended by %s: %s", s.By, commands.OneLine(s.Reason)), commands.Line("connections", "resume", s.Name)
	case s.State.Ended() && s.Authority == store.Obeys:
		r.Text, r.Fix = fmt.Sprintf("is %s by %s: %s", s.State, s.By, commands.OneLine(s.Reason)), "it never comes back; join again with a new token: "+commands.Line("spoke", "join", "--token-file", "FILE")
	case s.State.Ended():
		r.Text, r.Fix = fmt.Sprintf("is %s by %s: %s", s.State, s.By, commands.OneLine(s.Reason)), "it never comes back; its host may join again: "+commands.Line("invite", "--name", s.Name)
	case s.State != store.Active:
		r.Text = "is " + string(s.State)
	case s.Says.State == string(store.Suspended):
		r.Text, r.Since, r.Fix = fmt.Sprintf("is suspended by %s: %s", s.Name, commands.OneLine(s.Says.Reason)), nil, "it is resumed "+commands.OnItsHost+commands.Line("connections", "resume", s.ID)
	default:
		return nil
	}
	return []commands.WhyReason{r}
}

// SetClocks is what helps where clocks differ.
const SetClocks = "compare the clocks of both hosts, and set the one that is wrong; what waits is sent again by itself"

// why is what was wrong with the time of what came, without the remedy: that is what [SetClocks] is for.
func (r *RefusedBeat) why() string {
	said, _, _ := strings.Cut(r.Why, signing.CompareClocks)
	return commands.OneLine(said)
}

// Heartbeats says that those of a linked peer are not taken, or that it takes none of ours: of most both have a clock that differs.
func (s Standing) Heartbeats() []commands.WhyReason {
	r := commands.WhyReason{Code: commands.CauseClock, Fix: SetClocks}
	offset, _ := time.ParseDuration(s.ClockOffset)
	switch b := s.BeatRefused; {
	case !s.Linked || s.State != store.Active:
		return nil
	case b != nil && b.Code == signing.KeyUnknown:
		r.Code, r.Text, r.Fix = commands.CauseKey, fmt.Sprintf("signs its heartbeats with a key that is not known here (%s), so none is taken", b.Code), s.rejoin()
	case b != nil && b.Code != signing.TimeFuture && b.Code != signing.TimeExpired:
		r.Code, r.Text, r.Fix = commands.CauseQueue, fmt.Sprintf("its heartbeats are refused here (%s): %s", b.Code, commands.OneLine(b.Why)), ""
	case b != nil:
		r.Text = fmt.Sprintf("its heartbeats are refused here (%s): %s", b.Code, b.why())
	case s.Ahead != nil:
		r.Text = fmt.Sprintf("what it orders and reports is refused here (%s): %s", s.Ahead.Code, s.Ahead.why())
		r.Fix = "compare the clocks of both hosts and of their databases, and set the one that is wrong; what waits is sent again by itself"
	case offset < -signing.Skew:
		r.Text, r.Figure = fmt.Sprintf("its clock is %s behind, so it refuses what is signed here (%s)", commands.Lasting(offset.Abs()), signing.TimeFuture), commands.Figure(offset.Seconds())
	default:
		return nil
	}
	return []commands.WhyReason{r}
}

// Freezes says that one of its sides has frozen what is ordered over it.
func (s Standing) Freezes() (list []commands.WhyReason) {
	if f := s.Frozen; f != nil {
		said := "gets nothing: what is ordered on it is frozen by %s: %s"
		switch {
		case s.Authority == store.Obeys:
			said = "nothing that it orders is started: frozen here by %s: %s"
		case s.FreezeUnheard:
			said = "has not heard yet that what is ordered on it is frozen by %s: %s; it may start what it has accepted"
		}
		list = append(list, frozen(f, said, commands.ShellLine([]string{"spawnmesh", "unfreeze", "--scope", s.FrozenScope, "--reason", "WHY"})))
	}
	if f := s.Says.Freeze; f != nil && f.Frozen {
		list = append(list, frozen(f, "has frozen its agents: %s: %s", "nothing new is started for it until it is unfrozen there"))
	}
	return list
}

func frozen(f *commands.Freeze, said, fix string) commands.WhyReason {
	since := time.UnixMilli(f.Since)
	return commands.WhyReason{Code: commands.CauseFreeze, Text: fmt.Sprintf(said, commands.OneLine(f.By), commands.OneLine(f.Reason)), Since: &since, Fix: fix}
}

// Faults says what is wrong with messages and keys of a connection.
func (s Standing) Faults() (list []commands.WhyReason) {
	add := func(is bool, code commands.Cause, since *time.Time, fix, text string) {
		if is {
			list = append(list, commands.WhyReason{Code: code, Text: text, Since: since, Fix: fix})
		}
	}
	add(s.KeyLost && s.Linked, commands.CauseKey, nil, s.rejoin(), keyLost+"; nothing is relayed")
	add(s.Differs != "" && s.Linked && !s.KeyLost, commands.CauseHistories, nil, "", "nothing is relayed: "+s.Differs)
	if k := s.Says.Refuses; k != nil {
		add(true, commands.CauseKey, nil, commands.ShellLine(append([]string{"spawnmesh"}, MendKey(k.Key, s.KeyRevoked)...)), fmt.Sprintf("refuses the key that this instance signs with (%s)", k.Code))
	}
	if k := s.Refuses; k != nil {
		add(true, commands.CauseKey, nil, "its operator has to tell a newer one", fmt.Sprintf("signs with the key %s, which has ended here (%s), so nothing of it is taken", k.Key, k.Code))
	}
	add(s.Linked && s.Says.Limited, commands.CauseRate, nil, "", "takes less than this instance sends; what is above its rate waits here")
	add(s.Linked && s.Limited, commands.CauseRate, nil, "", "sends more than this instance takes; what is above the rate waits there")
	add(s.Linked && s.Says.Full, commands.CauseInbox, nil, "", "keeps no more messages of this instance until there is room there; they wait here")
	add(s.Full, commands.CauseInbox, s.FullSince, "to make room, "+InboxNext, "no more of its messages are kept here; they wait there")
	for _, q := range s.Queues {
		add(q.Problem != "", commands.CauseQueue, nil, commands.Line("doctor"), q.Queue+": "+commands.OneLine(q.Problem))
	}
	return list
}
