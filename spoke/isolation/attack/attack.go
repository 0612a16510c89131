// Package attack holds what a hostile agent tries. A spoke runs it at each level of isolation
// before it claims to have that level, and the tests make the table in docs/threats.md with it.
//
// This program is the agent when its first argument is [Arg]. Nothing that it does harms a host
// where it succeeds: it is aimed at decoys, and asks for what it may do where it can.
//
// Its tests are those of spoke/isolation.
package attack

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Arg makes this program the attacker.
const Arg = "_attack"

// Targets are what is attacked.
type Targets struct {
	Data     string // a data directory, with a file secret, policy.yaml, and the directory agents
	Other    string // the directory of another attempt in it: control, home
	Daemon   int    // process of the spoke
	Shim     int    // process of this attempt's shim; 0 = the parent
	Abstract string // abstract socket of the spoke
	Loopback string // where the spoke listens on the loopback: a TCP address
	Shared   int    // System V shared memory of another user; -1 = there is none
	Terminal string // terminal of the spoke's user; "" = there is none

	Bubble bool  // the agent has namespaces of its own: what has a name may be something else there
	Known  Known // what the names are of outside
}

// An Attack is one try. What keeps it from success differs.
type Attack struct {
	Name string
	What string // for people
	// User says that a user of the agent's own keeps it out. Landlock is the version of
	// Landlock from which rules do; 0 = they never do, needsRoot = nobody but root gets through.
	User     bool
	Landlock int

	try func(t Targets) error // nil = it got through
}

// needsRoot stands where rules would: the level landlock is not one of root's.
const needsRoot = -1

// All lists the attacks.
func All() []Attack { return slices.Concat(onFiles, onProcesses, onHost) }

// Local reports whether an attack is one on the spoke and other agents, and not on the host as
// a whole, which may keep it from everybody.
func (a Attack) Local() bool {
	return !slices.ContainsFunc(onHost, func(b Attack) bool { return a.Name == b.Name })
}

// NeedsRoot reports whether nobody but root gets through anywhere.
func (a Attack) NeedsRoot() bool { return a.Landlock == needsRoot }

// Network reports whether an attack goes by a network, which an agent in a bubble may have.
func (a Attack) Network() bool { return a.Name == "connect-abstract" || a.Name == "connect-port" }

// Given reports whether the rules allow an attack to agents with a user of their own: programs
// need shared memory, and what others have there is not that user's.
func (a Attack) Given() bool { return a.Name == "write-memory" }

// Holds reports whether something keeps an attack out: a bubble, in which nothing is there to be
// attacked, a user, or a version of Landlock, 0 without it.
func (a Attack) Holds(bubble, user bool, abi int) bool {
	rules := a.Landlock > 0 && abi >= a.Landlock && !(user && a.Given())
	return bubble || user && a.User || rules || a.NeedsRoot()
}

// Words of the report, one line an attack.
const (
	through = "through"
	refused = "refused"
)

// init makes this program the attacker when it is executed as one. No main takes part.
func init() {
	if len(os.Args) == 3 && os.Args[1] == Arg {
		os.Exit(attackAll(os.Args[2]))
	}
}

func attackAll(targets string) int {
	var t Targets
	if err := json.Unmarshal([]byte(targets), &t); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "reading the targets:", err)
		return 1
	}
	if t.Shim == 0 {
		t.Shim = os.Getppid()
	}
	t.enter()
	for _, a := range All() {
		if err := a.try(t); err != nil {
			fmt.Println(a.Name, refused, err)
		} else {
			fmt.Println(a.Name, through)
		}
	}
	return 0
}

// Read returns which attacks of a report got through. An attack that is not in it is an error.
func Read(report io.Reader) (map[string]bool, error) {
	got := map[string]bool{}
	lines := bufio.NewScanner(report)
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) >= 2 {
			got[f[0]] = f[1] == through
		}
	}
	for _, a := range All() {
		if _, ok := got[a.Name]; !ok {
			return nil, fmt.Errorf("the attack %q was not tried", a.Name)
		}
	}
	return got, lines.Err()
}
