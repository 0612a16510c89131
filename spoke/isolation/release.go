package isolation

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// What is left of agents is looked for together: it means reading all processes of this host.
const (
	between      = time.Second      // two looks, at least,
	costs        = 100              // and this many times what the last one took;
	betweenFails = 10 * time.Second // two looks at a user that something is left of
)

// over are the users of agents that are over, until it is known that nothing of them is left.
type over struct {
	looking sync.Mutex // held while one looks

	mu     sync.Mutex // guards what follows
	users  map[int64]Dirs
	kept   map[int64]error // why the last look has kept a user
	took   time.Duration
	timer  *time.Timer // nil: none is waited for
	closed bool
}

// Release takes the user of an agent back that is proven to be over, with its directories and
// what it has left outside of them: who gets the user next reaches none of it. It does so soon,
// for all that are over at once, and keeps a user while that fails; see [Isolation.Kept].
func (i *Isolation) Release(u supervisor.User, d Dirs) {
	if i.users == nil {
		return
	}
	if u.ID == 0 {
		takeStrange(d)
		return
	}
	o := &i.over
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.users == nil {
		o.users, o.kept = map[int64]Dirs{}, map[int64]error{}
	}
	if o.users[u.ID] = d; o.timer == nil && !o.closed {
		o.timer = time.AfterFunc(max(between, costs*o.took), func() { i.Settle() })
	}
}

// Releases reports whether a user is being taken back that had these directories.
func (i *Isolation) Releases(id int64, d Dirs) bool {
	i.over.mu.Lock()
	defer i.over.mu.Unlock()
	had, is := i.over.users[id]
	return is && had == d
}

// takeStrange takes back directories whose user is none that this instance has for the agent: the
// range was another one when it was started, or the directories come from a backup. The agent is over.
func takeStrange(d Dirs) {
	for _, dir := range d.list() {
		if id, _ := ownerOf(dir); id > 0 {
			_ = takeBack([]string{dir}) // else at the next sweep
		}
	}
}

// Kept says why users of agents that are over are kept: something is left of each.
func (i *Isolation) Kept() map[int64]error {
	i.over.mu.Lock()
	defer i.over.mu.Unlock()
	return maps.Clone(i.over.kept)
}

// Settle looks now at all whose agents are over, and reports whether any was taken back.
func (i *Isolation) Settle() bool {
	o := &i.over
	o.looking.Lock()
	defer o.looking.Unlock()
	o.mu.Lock()
	users := maps.Clone(o.users)
	o.mu.Unlock()
	if len(users) == 0 {
		return false
	}
	began := time.Now()
	kept := i.clear(users)
	for id := range users {
		if kept[id] == nil {
			i.users.release(id)
		}
	}
	o.note(users, kept, time.Since(began), func() { i.Settle() })
	return len(kept) < len(users)
}

// note takes over what a look has found, and sets the time of the next one.
func (o *over) note(users map[int64]Dirs, kept map[int64]error, took time.Duration, look func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id := range users {
		if kept[id] == nil {
			delete(o.users, id)
		}
	}
	o.kept, o.took = kept, took
	if o.timer != nil {
		o.timer.Stop()
		o.timer = nil
	}
	pause := max(between, costs*took)
	if len(o.users) == len(kept) {
		pause = max(betweenFails, pause)
	}
	if len(o.users) > 0 && !o.closed {
		o.timer = time.AfterFunc(pause, look)
	}
}

// close ends the looks that come by themselves.
func (o *over) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	if o.timer != nil {
		o.timer.Stop()
		o.timer = nil
	}
}

// clear removes what is left of users, and returns those of which something stays, and why.
func (i *Isolation) clear(users map[int64]Dirs) map[int64]error {
	kept := map[int64]error{}
	first, last := i.Range()
	running, err := supervisor.RunningUsers(first, last)
	for id := range users {
		switch {
		case err != nil:
			kept[id] = err
		case running[id]:
			// It was proven over: this one was started by somebody else in its name, or does not end.
			kept[id] = errors.Join(fmt.Errorf("processes of user %d are left; the user is given to no other agent", id), supervisor.EndUser(i.users.user(id)))
		}
	}
	for id, err := range removeLeftovers(users, kept) {
		kept[id] = err
	}
	for id, d := range users {
		if kept[id] == nil {
			if err := errors.Join(supervisor.ClearKeys(i.users.user(id)), takeBack(d.list())); err != nil {
				kept[id] = err
			}
		}
	}
	return kept
}
