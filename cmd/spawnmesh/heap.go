package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// While an instance works hard and has little in use, its heap grows to five times of that,
// otherwise to twice. Hard is when collections are close to each other; see docs/decisions/0021.
const (
	idlePercent = 100
	busyPercent = 400
	largeHeap   = 32 << 20         // bytes in use: five times of it is all that a busy heap takes
	farApart    = 10 * time.Second // two collections: it does not work hard any more
)

// A heapPacer decides how far the heap of this process may grow.
type heapPacer struct {
	calmAfter time.Duration // without a collection; two within a tenth of it are close

	mu    sync.Mutex // guards the rest
	last  time.Time  // when a collection was heard of
	busy  bool
	calm  *time.Timer // runs while busy
	ended bool
}

// paceHeap follows the collections of this process until stop is called.
func paceHeap() (stop func()) { return (&heapPacer{calmAfter: farApart}).start() }

// start begins, unless a person has decided by setting GOGC.
func (p *heapPacer) start() (stop func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	p.calm = time.AfterFunc(p.calmAfter, p.rest)
	p.calm.Stop()
	p.listen()
	return p.stop
}

// listen has collected called after the next collection, which finds that nobody refers to
// what is made here. It has a pointer in it: the smallest objects without share their memory.
func (p *heapPacer) listen() { runtime.AddCleanup(new(*byte), (*heapPacer).collected, p) }

func (p *heapPacer) collected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	since := time.Since(p.last)
	p.last = time.Now()
	p.setBusy(inUse() <= largeHeap && (p.busy || since < p.calmAfter/10))
	p.listen()
}

// setBusy has the heap grow as far as that wants. The caller holds mu.
func (p *heapPacer) setBusy(busy bool) {
	percent := idlePercent
	if p.calm.Stop(); busy {
		percent = busyPercent
		p.calm.Reset(p.calmAfter)
	}
	if busy != p.busy {
		p.busy = busy
		debug.SetGCPercent(percent) // stops the world
	}
}

// inUse is how many bytes of the heap the last collection found in use.
func inUse() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// rest gives back what a busy time has left: the next collection may be two minutes away.
func (p *heapPacer) rest() {
	p.mu.Lock()
	was := p.busy && !p.ended
	if was {
		p.setBusy(false)
	}
	p.mu.Unlock()
	if was {
		debug.FreeOSMemory()
	}
}

func (p *heapPacer) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.setBusy(false)
}
