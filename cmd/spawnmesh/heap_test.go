package main

import (
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Not parallel: there is one heap.
func TestTheHeapGrowsWhileThereIsWork(t *testing.T) {
	t.Setenv("GOGC", "")
	percent := func() uint64 { return metric("/gc/gogc:percent") }
	held := func() uint64 { return metric("/memory/classes/heap/objects:bytes") }
	becomes := func(want uint64, collect func(), why string) {
		t.Helper()
		require.Eventually(t, func() bool { collect(); return percent() == want }, 30*time.Second, time.Millisecond, why)
	}
	const large = largeHeap + 8<<20
	p := &heapPacer{calmAfter: time.Second}
	stop := p.start()
	defer stop()
	require.EqualValues(t, idlePercent, percent())

	becomes(busyPercent, runtime.GC, "collections that follow each other")
	inUse := make([]byte, large)
	becomes(idlePercent, runtime.GC, "as long as much is in use")
	runtime.KeepAlive(inUse)
	inUse = nil
	becomes(busyPercent, runtime.GC, "little is in use again")

	garbage := make([]byte, largeHeap/2)
	runtime.GC()
	runtime.KeepAlive(garbage)
	becomes(idlePercent, func() {}, "nothing has been collected for a while")
	require.Eventually(t, func() bool { return held() < largeHeap/2 }, 30*time.Second, time.Millisecond, "what the work has left is given back")

	becomes(busyPercent, runtime.GC, "it is heard of later collections, too")
	stop()
	assert.EqualValues(t, idlePercent, percent(), "after the end")
}

// Whoever sets GOGC has decided.
func TestGOGCDecides(t *testing.T) {
	t.Setenv("GOGC", "100")
	defer paceHeap()()

	for range 20 {
		heard := make(chan struct{})
		runtime.AddCleanup(new(*byte), func(c chan struct{}) { close(c) }, heard)
		runtime.GC()
		<-heard
	}

	assert.EqualValues(t, idlePercent, metric("/gc/gogc:percent"))
}

func metric(name string) uint64 {
	s := []metrics.Sample{{Name: name}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
