package main

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/internal/instance"
)

// A lasting is something that a person may have to wait for.
type lasting struct {
	begun time.Time
	tell  func(text string)
	end   func()
	stop  chan struct{}
	ended chan struct{}
	over  sync.Once

	mu   sync.Mutex // guards what follows
	what func() string
}

// A pace is how often something that lasts is spoken of.
type pace struct{ first, again time.Duration }

// Who sees one line change may see it each second; who reads all of them, not.
var (
	onScreen = pace{time.Second, time.Second}
	inLines  = pace{time.Second, 10 * time.Second}
)

// lasting says on standard error what this call is at, once that has taken a second, until done
// is called: on a terminal in place, else in a line now and then.
func (a *app) lasting(what string) *lasting {
	if !a.forPeople() {
		return &lasting{}
	}
	shared, restore := a.share(true)
	p := inLines
	if shared.inPlace {
		p = onScreen
	}
	return newLasting(what, p, func(text string) { shared.progress(printable(text)) }, restore)
}

// longer runs what takes its time on the instance of this call, and says what it is at.
func (a *app) longer(what string, fn func(o instance.Options) error) error {
	l := a.lasting(what)
	defer l.done()
	o, err := a.options(a.logger(slog.LevelWarn))
	if err != nil {
		return err
	}
	o.Doing = l.now
	return fn(o)
}

// newLasting tells at a pace what lasts; end is called after the last of it.
func newLasting(what string, p pace, tell func(text string), end func()) *lasting {
	l := &lasting{begun: time.Now(), tell: tell, end: end, stop: make(chan struct{}), ended: make(chan struct{}), what: func() string { return what }}
	go l.run(p)
	return l
}

// now says that this call is at something else by now.
func (l *lasting) now(what string) { l.is(func() string { return what }) }

// is is now for what changes meanwhile; "" is not spoken of.
func (l *lasting) is(what func() string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.what = what
}

func (l *lasting) run(p pace) {
	defer close(l.ended)
	for next := time.After(p.first); ; next = time.After(p.again) {
		select {
		case <-l.stop:
			return
		case <-next:
		}
		l.mu.Lock()
		what := l.what()
		l.mu.Unlock()
		if what != "" {
			l.tell(fmt.Sprintf("%s, %s so far", what, time.Since(l.begun).Round(time.Second)))
		}
	}
}

// done ends the last line. Nothing is told after it.
func (l *lasting) done() {
	l.over.Do(func() {
		if l.stop == nil { // nothing is told to programs
			return
		}
		close(l.stop)
		<-l.ended
		l.end()
	})
}
