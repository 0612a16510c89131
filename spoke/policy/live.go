package policy

import (
	"sync"
	"sync/atomic"
)

// A Live policy is the one in force. Its methods may be called at any time.
type Live struct {
	dir    string
	reload sync.Mutex // one reload at a time: the file read last is the one in force
	now    atomic.Pointer[Policy]
	held   Held // nil before [Live.Isolates]
}

// A Change says what a reload did.
type Change struct {
	Policy string `json:"policy"` // the version in force
	Was    string `json:"was"`    // the one before; the same when no rule changed
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
	now := *l.Now()
	now.held = held
	l.now.Store(&now)
}

// Now returns the policy in force.
func (l *Live) Now() *Policy { return l.now.Load() }

// Reload reads the policy again, with the files it names, and puts it in force
// whole. After an error the one before stays.
func (l *Live) Reload() (Change, error) {
	l.reload.Lock()
	defer l.reload.Unlock()
	was := l.Now().ID()
	p, err := Load(l.dir)
	if err != nil {
		return Change{was, was}, err
	}
	p.held = l.held
	l.now.Store(p)
	return Change{p.ID(), was}, nil
}
