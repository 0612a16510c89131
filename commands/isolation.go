package commands

import (
	"slices"
	"strings"
)

// The levels of isolation: what keeps an agent from the host that it runs on.
const (
	IsolationNone         = "none"          // nothing: it has the user of the spoke
	IsolationLandlock     = "landlock"      // rules of the kernel: its own directories, system directories to read
	IsolationUser         = "user"          // a user of its own, which has nothing else
	IsolationBubble       = "bubble"        // namespaces of its own: no other process, no file but its own and the system's (bubblewrap)
	IsolationUserLandlock = "user+landlock" // both
	IsolationUserBubble   = "user+bubble"   // both
)

// IsolationLevels are all levels. A later one may confine by other things than an earlier one.
var IsolationLevels = []string{IsolationNone, IsolationBubble, IsolationLandlock, IsolationUser, IsolationUserBubble, IsolationUserLandlock}

// IsolationUnmet is what a spoke says in place of a level that cannot confine agents as its
// policy demands: it starts no program.
const IsolationUnmet = "unmet"

// isolationPrefix begins the capabilities that say what a spoke confines its agents by.
const isolationPrefix = "isolation:"

// IsolationCapabilities are what a spoke offers whose agents run at a level, and what an
// order asks for that demands one.
func IsolationCapabilities(level string) (list []string) {
	for _, part := range isolationParts(level) {
		list = append(list, isolationPrefix+part)
	}
	return list
}

// IsolationBy returns what a capability says agents are confined by, false for one that says
// something else. Only a probe offers one.
func IsolationBy(capability string) (part string, ok bool) {
	return strings.CutPrefix(capability, isolationPrefix)
}

// MeetsIsolation reports whether a level confines an agent by all that another one does.
func MeetsIsolation(level, demanded string) bool {
	have := isolationParts(level)
	return !slices.ContainsFunc(isolationParts(demanded), func(part string) bool { return !slices.Contains(have, part) })
}

// IsolationDemanded is the weakest level that confines by all that the capabilities of an order
// ask for; false = there is none.
func IsolationDemanded(capabilities []string) (level string, ok bool) {
	var parts []string
	for _, c := range capabilities {
		if part, ok := IsolationBy(c); ok {
			parts = append(parts, part)
		}
	}
	for _, level := range IsolationLevels {
		if have := isolationParts(level); !slices.ContainsFunc(parts, func(part string) bool { return !slices.Contains(have, part) }) {
			return level, true
		}
	}
	return "", false
}

func isolationParts(level string) []string {
	if level == IsolationNone || level == "" {
		return nil
	}
	return strings.Split(level, "+")
}

// checkIsolation checks a level of a message; "" = it is not known.
func checkIsolation(level string) error {
	if level != "" && !slices.Contains(IsolationLevels, level) {
		return Refuse(Validation, "isolation %q is none of %s", level, strings.Join(IsolationLevels, ", "))
	}
	return nil
}
