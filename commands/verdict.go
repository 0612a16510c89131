package commands

import (
	"fmt"
	"time"
)

// A VerdictWord says what an agent that has begun and not ended is at.
type VerdictWord string

// The words of a [Verdict].
const (
	Working VerdictWord = "working"
	Waiting VerdictWord = "waiting" // for an answer
	Limited VerdictWord = "limited" // by its provider
	Hung    VerdictWord = "hung"    // it runs, and shows no sign of work
	CutOff  VerdictWord = "cut off" // nothing is heard of its spoke
	Asleep  VerdictWord = "asleep"  // paused, or its host was suspended
)

// VerdictWords lists them.
var VerdictWords = []VerdictWord{Working, Waiting, Limited, Hung, CutOff, Asleep}

// A Sign is what an agent was seen to do last.
type Sign string

// The signs of an agent.
const (
	SignStart     Sign = "start"     // it was started, or taken over by a spoke that was started again
	SignResume    Sign = "resume"    // it was paused, and goes on
	SignOutput    Sign = "output"    // it wrote
	SignCPU       Sign = "cpu"       // it used a hundredth of a processor
	SignProgress  Sign = "progress"  // it said how far it has come
	SignHeartbeat Sign = "heartbeat" // it asked or said something else by its door
)

// signWords say what the signs are.
var signWords = map[Sign]string{
	SignStart:     "it was started, or taken over by its spoke",
	SignResume:    "it was resumed",
	SignOutput:    "it wrote output",
	SignCPU:       "it used a processor",
	SignProgress:  "it told its progress",
	SignHeartbeat: "it talked to its spoke",
}

// HungAfter is how long an agent may show no sign before it counts as hung.
const HungAfter = 10 * time.Minute

// leastSleep is how much of a suspension is told: clocks of a host are read one after the other.
const leastSleep = time.Second

// Evidence is what is known of an agent at the moment of asking.
type Evidence struct {
	State    State
	Reason   Reason
	Unheard  string        // why what is known may be old: the link is down, since when; "" = it is of now
	Sign     Sign          // "" = its spoke does not say
	Idle     time.Duration // since the sign, without what its host slept
	Slept    time.Duration // of its host since the sign
	Patience time.Duration // 0 = HungAfter
}

// A Verdict is derived from evidence whenever somebody asks, and is stored nowhere.
type Verdict struct {
	Word     VerdictWord `json:"word"`
	Evidence string      `json:"evidence"`
}

// Verdict says what an agent is at; nil where it has not begun, has ended, or waits for its next attempt.
func (e Evidence) Verdict() *Verdict {
	parked := e.State == Queued && e.Reason == Limit
	switch {
	case !parked && e.State != Running && e.State != AwaitingInput && e.State != Paused:
		return nil
	case e.Unheard != "":
		return &Verdict{CutOff, e.Unheard}
	case parked:
		return &Verdict{Limited, "it met a limit of its provider, and goes on by itself"}
	case e.State == Paused:
		return &Verdict{Asleep, "it is paused"}
	case e.State == AwaitingInput:
		return &Verdict{Waiting, "it waits for an answer"}
	case e.Sign == "":
		return &Verdict{Working, "it runs; its spoke has not said yet what it does"}
	}
	return e.ofSign()
}

// ofSign is the verdict on an agent that runs.
func (e Evidence) ofSign() *Verdict {
	patience := e.Patience
	if patience == 0 {
		patience = HungAfter
	}
	last := fmt.Sprintf("%s %s ago", signWords[e.Sign], Lasting(max(e.Idle.Round(time.Second), time.Second)))
	slept := ""
	if e.Slept >= leastSleep {
		slept = fmt.Sprintf(", and its host slept %s since", Lasting(e.Slept.Round(time.Second)))
	}
	switch {
	case e.Idle >= patience:
		return &Verdict{Hung, "no output, progress, heartbeat or processor time since " + last + slept}
	case slept != "":
		return &Verdict{Asleep, last + slept}
	}
	return &Verdict{Working, last}
}

// checkSign checks what a heartbeat says of the signs of an agent.
func (a AgentBeat) checkSign() error {
	if _, known := signWords[a.Sign]; a.Sign != "" && !known {
		return Refuse(Validation, "%q is not a sign of an agent", Clip(string(a.Sign)))
	}
	if min(a.IdleMS, a.SleptMS) < 0 || max(a.IdleMS, a.SleptMS) > lastTime {
		return Refuse(Validation, "a heartbeat tells times of an agent that cannot be")
	}
	return nil
}
