package commands

import (
	"regexp"
	"slices"
)

// MaxDeclines is how many reasons a heartbeat has for what its sender does not take.
const MaxDeclines = 16

// A Decline says in a heartbeat that orders of the receiver are not taken, and why. It changes nothing: the receiver may order, and is refused.
type Decline struct {
	Code  string `json:"code"`            // one of [Declines], or what a newer spoke says
	What  string `json:"what,omitempty"`  // the kind of order that is meant; "" = all
	Since int64  `json:"since,omitempty"` // ms since 1970
}

// The codes of a [Decline].
const (
	DeclinesExpired = "grant_expired" // the grant of the connection has expired
	DeclinesKind    = "grant_kind"    // the grant does not allow a kind of order
	DeclinesPolicy  = "policy"        // no runtime of the grant may run anything by the policy of the host
	DeclinesLane    = "lane"          // the lane of agents is paused or disabled: what is ordered waits
	DeclinesLimit   = "account_limit" // an account has met a limit of its provider: agents of that account wait
)

// Declines lists the codes that are known.
var Declines = []string{DeclinesExpired, DeclinesKind, DeclinesPolicy, DeclinesLane, DeclinesLimit}

var declineForm, declinedForm = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`), regexp.MustCompile(`^([a-z][a-z0-9_.]{0,63})?$`)

// Starts reports whether what is declined would start something, whatever it is. A limit of an account keeps its agents alone.
func (d Decline) Starts() bool {
	return d.Code != DeclinesLimit && (d.What == "" || d.What == string(SpawnKind))
}

func checkDeclines(list []Decline) error {
	if len(list) > MaxDeclines {
		return Refuse(Validation, "%d reasons why orders are not taken, limit %d", len(list), MaxDeclines)
	}
	i := slices.IndexFunc(list, func(d Decline) bool { return !declineForm.MatchString(d.Code) || !declinedForm.MatchString(d.What) })
	if i >= 0 {
		return Refuse(Validation, "%q of %q is not why orders are not taken", Clip(list[i].Code), Clip(list[i].What))
	}
	for _, d := range list {
		if err := checkTimes(d.Since); err != nil {
			return err
		}
	}
	return nil
}
