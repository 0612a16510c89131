package policy

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/spawnmesh/spawnmesh/commands"
)

// A Live policy is the one in force. Its methods may be called at any time.
type Live struct {
	dir    string
	reload sync.Mutex // one reload at a time: the file read last is the one in force
	now    atomic.Pointer[Policy]
	held   Held // nil before [Live.Isolates]

	fetches bool // [Live.Fetches]
}

// A Change says what a reload did.
type Change struct {
	Policy string `json:"policy"`              // the version in force
	Was    string `json:"was"`                 // the one before; the same when no rule changed
	Level  string `json:"isolation,omitempty"` // what agents are confined by under the one in force; "" = none is started

	Lifted []string `json:"lifted,omitempty"` // accounts that had met a limit, and go on
}

// Open reads the policy of the instance in dir and puts it in force.
func Open(dir string) (*Live, error) {
	l := &Live{dir: dir}
	p, err := Load(dir)
	if err != nil {
		return nil, err
	}
	l.now.Store(p)
	return l, nil
}

// Isolates has the policy in force, and each one after it, go by what this host was found to
// hold.
func (l *Live) Isolates(held Held) {
	l.reload.Lock()
	defer l.reload.Unlock()
	l.held = held
	l.now.Store(l.Now().On(held))
}

// Fetches says that this spoke fetches the inputs of orders. Until then none may have some, whatever a policy says.
func (l *Live) Fetches() {
	l.reload.Lock()
	defer l.reload.Unlock()
	l.fetches = true
	now := *l.Now()
	now.fetches = true
	l.now.Store(&now)
}

// Now returns the policy in force.
func (l *Live) Now() *Policy { return l.now.Load() }

// Reload reads the policy again, with the files it names, and puts it in force
// whole. After an error the one before stays. One under which no program could start, as
// this host does not confine agents as it demands, is an error. So is another version than the one that is expected, "" for any.
func (l *Live) Reload(expected string) (Change, error) {
	l.reload.Lock()
	defer l.reload.Unlock()
	was := l.Now()
	p, err := Load(l.dir)
	if err == nil {
		p.held, p.fetches = l.held, l.fetches
		err = p.holds(l.dir)
	}
	if err == nil && expected != "" && p.ID() != expected {
		err = commands.Refuse(commands.Conflict, "policy %s has version %s, and %s was expected", File(l.dir), p.ID(), expected)
	}
	if err != nil {
		p = was
	}
	l.now.Store(p)
	return change(p, was), err
}

// holds says why agents cannot be confined as p demands of this host. Where no program may run
// there is nothing to confine, so a host can always withdraw what it has allowed.
func (p *Policy) holds(dir string) error {
	if !slices.Contains(p.Runtimes, commands.RuntimeExec) {
		return nil
	}
	if _, err := p.Level(); err != nil {
		return fmt.Errorf("policy %s: %w", File(dir), err)
	}
	return nil
}

func change(now, was *Policy) Change {
	c := Change{Policy: now.ID(), Was: was.ID()}
	if level, err := now.Level(); err == nil {
		c.Level = level
	}
	return c
}
