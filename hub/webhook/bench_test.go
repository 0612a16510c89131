package webhook

import (
	"fmt"
	"testing"
	"time"
)

// What 50 webhooks are told of 100 changes at a time, from the change to the last answer that is noted. One receiver is
// on the same machine, and verifies nothing.
func BenchmarkWebhooks(b *testing.B) {
	const webhooks, changes = 50, 100
	to := receive(b, nil)
	r := newRig(b, to)
	for i := range webhooks {
		r.create(b, fmt.Sprintf("hook-%d", i), to, New{})
	}
	told := 0
	for b.Loop() {
		r.changes(b, "running", changes)
		told += webhooks * changes
		for r.Count(b, `SELECT count(*) FROM webhook_deliveries WHERE state = 'delivered'`) < told {
			time.Sleep(10 * time.Millisecond)
		}
	}
	b.ReportMetric(float64(told)/b.Elapsed().Seconds(), "deliveries/s")
}
