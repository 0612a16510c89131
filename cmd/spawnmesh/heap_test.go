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
	percent := func() uint64 {
		s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	p := &heapPacer{}
	stop := p.start()
	require.EqualValues(t, idlePercent, percent())

	require.Eventually(t, func() bool { runtime.GC(); return percent() == busyPercent }, 30*time.Second, time.Millisecond, "collections that follow each other")
	p.rest()
	assert.EqualValues(t, idlePercent, percent(), "nothing has been collected for a while")
	require.Eventually(t, func() bool { runtime.GC(); return percent() == busyPercent }, 30*time.Second, time.Millisecond, "it is heard of later collections, too")
	stop()
	assert.EqualValues(t, idlePercent, percent(), "after the end")
}
