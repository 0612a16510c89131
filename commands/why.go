package commands

import (
	"fmt"
	"slices"
	"time"
)

// A Cause says what keeps something from going on, or what it is at. The list is closed.
type Cause string

// The causes of a [WhyReason].
const (
	CauseState      Cause = "state"      // of the task: nothing else keeps it, or what it is at
	CauseLease      Cause = "lease"      // somebody holds it
	CauseQuestion   Cause = "question"   // it waits for an answer
	CauseReview     Cause = "review"     // it waits for a review, or for its merge
	CauseEnded      Cause = "ended"      // it is over
	CauseKill       Cause = "kill"       // its end is ordered
	CauseOrder      Cause = "order"      // on the way to its spoke, with what it brings
	CauseConnection Cause = "connection" // suspended, ended, or not yet active
	CauseLink       Cause = "link"       // down, or nothing is heard over it
	CauseGrant      Cause = "grant"      // of its hub has expired
	CauseInbox      Cause = "inbox"      // there is no room for messages
	CauseHistories  Cause = "histories"  // one side was restored from a backup
	CauseKey        Cause = "key"        // has ended on the other side
	CauseRate       Cause = "rate"       // more than the other side takes
	CauseQueue      Cause = "queue"      // nobody reads messages
	CauseClock      Cause = "clock"      // the clocks of the two sides differ
	CauseFreeze     Cause = "freeze"
	CauseLane       Cause = "lane" // paused or disabled
	CauseDependency Cause = "dependency"
	CauseInput      Cause = "input" // of its order is on its way
	CauseNotBefore  Cause = "not_before"
	CauseCapability Cause = "capability" // nobody has all that it needs
	CauseQuota      Cause = "quota"
	CauseBudget     Cause = "budget"
	CauseLimit      Cause = "limit" // of a provider
	CausePolicy     Cause = "policy"
	CauseIsolation  Cause = "isolation" // the host cannot confine it as it is demanded
	CauseSpoke      Cause = "spoke"     // no spoke runs
	CauseStopping   Cause = "stopping"  // the spoke starts nothing more
	CauseHost       Cause = "host"      // starts nothing now, by its own word
	CauseDisk       Cause = "disk"      // of the host is short
	CauseSlots      Cause = "slots"     // all are in use
)

// Causes lists every cause.
var Causes = []Cause{CauseState, CauseLease, CauseQuestion, CauseReview, CauseEnded, CauseKill, CauseOrder, CauseConnection, CauseLink, CauseGrant,
	CauseInbox, CauseHistories, CauseKey, CauseRate, CauseQueue, CauseClock, CauseFreeze, CauseLane, CauseDependency, CauseInput, CauseNotBefore, CauseCapability,
	CauseQuota, CauseBudget, CauseLimit, CausePolicy, CauseIsolation, CauseSpoke, CauseStopping, CauseHost, CauseDisk, CauseSlots}

// A WhyReason is one thing that keeps something from going on, or what it is at.
type WhyReason struct {
	Code   Cause      `json:"code"`
	Text   string     `json:"text"`
	Since  *time.Time `json:"since,omitempty"`
	Until  *time.Time `json:"until,omitempty"`
	Where  string     `json:"where,omitempty"`  // the name of the spoke that says so; "" = the instance that is asked
	Fix    string     `json:"fix,omitempty"`    // what would change it; a command line of this program is the whole of it, or its end behind ": "
	Figure *float64   `json:"figure,omitempty"` // where the cause is a number: slots, what is left of a budget or a quota, a clock's offset in seconds
}

// OnItsHost stands in a fix before a command line that is typed on the host of the other side. Any other is for the instance that is asked.
const OnItsHost = "on its host: "

// DefaultLease is how long agents go on without a spoke that says nothing else.
const DefaultLease = time.Minute

// MaxBefore is up to where the orders are counted that stand before one.
const MaxBefore = 1000

// InLine says where an order stands that waits for a slot, behind others of the same hub.
func InLine(before int, hub string) string {
	switch {
	case before == 0:
		return "it is the next order of " + hub
	case before == 1:
		return "1 order of " + hub + " stands before it"
	case before > MaxBefore:
		return fmt.Sprintf("more than %d orders of %s stand before it", MaxBefore, hub)
	}
	return fmt.Sprintf("%d orders of %s stand before it", before, hub)
}

// MaxReasons is how many reasons an answer to a status command has.
const MaxReasons = 16

// maxReasonText bounds each text of a reason on the wire, in bytes.
const maxReasonText = 400

// A TaskReason is a [WhyReason] on the wire.
type TaskReason struct {
	Code   Cause    `json:"code"`
	Text   string   `json:"text"`
	Since  int64    `json:"since,omitempty"` // ms since 1970, as until
	Until  int64    `json:"until,omitempty"`
	Fix    string   `json:"fix,omitempty"`
	Figure *float64 `json:"figure,omitempty"`
}

// ToldReasons are reasons as they cross the wire: no more and no longer than is taken there.
func ToldReasons(list []WhyReason) (told []TaskReason) {
	for _, r := range list[:min(len(list), MaxReasons)] {
		t := TaskReason{Code: r.Code, Text: Clean(r.Text, maxReasonText), Since: ms(r.Since), Until: ms(r.Until), Fix: Clean(r.Fix, maxReasonText)}
		if fits(r.Figure) {
			t.Figure = r.Figure
		}
		told = append(told, t)
	}
	return told
}

// Said are the reasons of an answer, of the spoke that gave it.
func (b *TaskState) Said(spoke string) (list []WhyReason) {
	for _, r := range b.Reasons {
		list = append(list, WhyReason{Code: r.Code, Text: r.Text, Since: timeOf(r.Since), Until: timeOf(r.Until), Where: spoke, Fix: r.Fix, Figure: r.Figure})
	}
	return list
}

// Figure is a number of a reason.
func Figure[N int | int64 | float64](n N) *float64 {
	f := float64(n)
	return &f
}

func fits(f *float64) bool { return f == nil || *f >= -maxNumber && *f <= maxNumber }

func ms(t *time.Time) int64 {
	if t == nil || checkTimes(t.UnixMilli()) != nil {
		return 0
	}
	return t.UnixMilli()
}

func timeOf(ms int64) *time.Time {
	if ms == 0 {
		return nil
	}
	t := time.UnixMilli(ms).UTC()
	return &t
}

func checkReasons(list []TaskReason) error {
	if len(list) > MaxReasons {
		return Refuse(Validation, "%d reasons, limit %d", len(list), MaxReasons)
	}
	for _, r := range list {
		if !slices.Contains(Causes, r.Code) {
			return Refuse(Validation, "%q is not the code of a reason", Clip(string(r.Code)))
		}
		if !fits(r.Figure) {
			return Refuse(Validation, "the figure of a reason is outside -%d..%d", int64(maxNumber), int64(maxNumber))
		}
		if err := checkTimes(r.Since, r.Until); err != nil {
			return err
		}
		if err := checkText("the text of a reason", r.Text, maxReasonText); err != nil {
			return err
		}
		if err := checkText("what changes a reason", r.Fix, maxReasonText); err != nil {
			return err
		}
	}
	return nil
}
