package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// While an instance works hard its heap grows to five times of what is in use, without that
// to twice. Hard is when collections are close to each other; see docs/decisions/0021.
const (
	idlePercent = 100
	busyPercent = 400
	closeBy     = time.Second      // between two collections: it works hard
	farApart    = 10 * time.Second // and it does not any more
)

// A heapPacer decides how far the heap of this process may grow.
type heapPacer struct {
	mu    sync.Mutex // guards the rest
	last  time.Time  // when a collection was heard of
	busy  bool
	calm  *time.Timer // runs while busy
	ended bool
}

// paceHeap follows the collections of this process until stop is called. A person who has
// set GOGC has decided.
func paceHeap() (stop func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	return new(heapPacer).start()
}

func (p *heapPacer) start() (stop func()) {
	p.calm = time.AfterFunc(farApart, p.rest)
	p.calm.Stop()
	p.listen()
	return p.stop
}

// listen has collected called after the next collection, which finds that nobody refers to
// what is made here.
func (p *heapPacer) listen() {
	runtime.AddCleanup(&heapPacer{}, (*heapPacer).collected, p)
}

func (p *heapPacer) collected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	since := time.Since(p.last)
	p.last = time.Now()
	switch {
	case p.busy && since < farApart:
		p.calm.Reset(farApart)
	case !p.busy && since < closeBy:
		p.busy = true
		debug.SetGCPercent(busyPercent)
		p.calm.Reset(farApart)
	}
	p.listen()
}

// rest gives back what a busy time has left: the next collection may be two minutes away.
func (p *heapPacer) rest() {
	p.mu.Lock()
	if !p.busy || p.ended {
		p.mu.Unlock()
		return
	}
	p.busy, p.last = false, time.Time{} // the collection that follows is none of the work
	debug.SetGCPercent(idlePercent)
	p.mu.Unlock()
	debug.FreeOSMemory()
}

func (p *heapPacer) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.calm.Stop()
	debug.SetGCPercent(idlePercent)
}
