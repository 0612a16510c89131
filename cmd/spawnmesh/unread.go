package main

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// How much of an instance's words may wait for who reads them, and how long its end waits for that.
const (
	mostUnread = 1 << 20 // bytes
	lastWords  = time.Second
)

// An unread is a stream whose reader may be slow, or gone: who writes to it never waits. What does not fit is lost,
// and told in the log when there is room again.
type unread struct {
	to io.Writer

	mu      sync.Mutex // guards what follows
	more    *sync.Cond
	lines   [][]byte // that wait
	size    int      // of them
	drops   int      // that nobody was told of
	telling bool     // of those: the line that does is not lost
	log     *slog.Logger
	idle    bool // nothing waits, and nothing is being written
	ended   bool // nothing more comes
}

func newUnread(to io.Writer) *unread {
	u := &unread{to: to, log: slog.New(slog.DiscardHandler)}
	u.more = sync.NewCond(&u.mu)
	go u.pass()
	return u
}

// tells lets log tell what is lost.
func (u *unread) tells(log *slog.Logger) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.log = log
}

// Write keeps p until it can be written.
func (u *unread) Write(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.size+len(p) > mostUnread && !u.telling {
		u.drops++
		return len(p), nil
	}
	u.lines, u.size, u.idle = append(u.lines, bytes.Clone(p)), u.size+len(p), false
	u.more.Broadcast()
	return len(p), nil
}

// pass writes what waits, in its order.
func (u *unread) pass() {
	for line, ok := u.next(); ok; line, ok = u.next() {
		_, err := u.to.Write(line)
		u.mu.Lock()
		u.size -= len(line)
		drops, log := u.drops, u.log
		u.telling = err == nil && drops > 0
		if err == nil {
			u.drops = 0
		}
		u.mu.Unlock()
		if err == nil && drops > 0 {
			log.Warn("lines of this log are lost: nobody read it", "lines", drops)
			u.told()
		}
	}
}

func (u *unread) told() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.telling = false
}

// next waits for the line that is to be written, until no more comes.
func (u *unread) next() (line []byte, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.lines) == 0 {
		u.idle = true
		u.more.Broadcast()
		if u.ended {
			return nil, false
		}
		u.more.Wait()
	}
	line, u.lines = u.lines[0], u.lines[1:]
	return line, true
}

// end waits until all was written, at most for lastWords.
func (u *unread) end() {
	late := time.AfterFunc(lastWords, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.idle = true
		u.more.Broadcast()
	})
	defer late.Stop()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended = true
	u.more.Broadcast()
	for !u.idle {
		u.more.Wait()
	}
}

// neverWait keeps an instance from waiting for who reads its words, and from ending with them. At a terminal a person may hold
// them.
func (a *app) neverWait() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // what is started here would inherit that it is ignored
	later := func(w io.Writer) io.Writer {
		if terminal(w) {
			return w
		}
		a.unread = append(a.unread, newUnread(w))
		return a.unread[len(a.unread)-1]
	}
	a.err = later(a.err)
	if said, ok := a.out.(*answer); ok {
		said.to = later(said.to)
	}
}

// tellLosses lets log tell what of an instance's words is lost.
func (a *app) tellLosses(log *slog.Logger) {
	for _, u := range a.unread {
		u.tells(log)
	}
}
