package transport

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
)

// Messages carry 512 bytes, every store syncs, and everything goes over
// loopback TLS.

func benchReports(n int) []Report {
	all := make([]Report, n)
	for i := range all {
		all[i] = Report{Queue: commands.QueueEvents, ID: rand.Text(), Envelope: make([]byte, 512)}
	}
	return all
}

func benchCommands(conn string, n int) []Command {
	all := make([]Command, n)
	for i := range all {
		all[i] = Command{Conn: conn, Queue: commands.QueueRun, Verb: "spawn", ID: rand.Text(), Envelope: make([]byte, 512)}
	}
	return all
}

func benchHub(b *testing.B) (*Hub, *Link) {
	h := startHub(b, func(h *Hub) { h.CommandQuota, h.ReportQuota = 1<<30, 1<<30 })
	admit(b, h, "attic")
	return h, startLink(b, h, "attic")
}

func perMessage(b *testing.B, n int) {
	b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "msg/s")
}

func BenchmarkHubPublish(b *testing.B) {
	for _, n := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("batch=%d", n), func(b *testing.B) {
			h, _ := benchHub(b)
			for b.Loop() {
				requireSent(b, h.Publish(b.Context(), benchCommands("attic", n)))
			}
			perMessage(b, n)
		})
	}
}

func BenchmarkLinkPublish(b *testing.B) {
	for _, n := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("batch=%d", n), func(b *testing.B) {
			_, k := benchHub(b)
			for b.Loop() {
				requireSent(b, k.Publish(b.Context(), benchReports(n)))
			}
			perMessage(b, n)
		})
	}
}

// counter says when n messages were handled.
type counter struct {
	left atomic.Int64
	done chan struct{}
}

func newCounter() *counter { return &counter{done: make(chan struct{}, 1)} }

func (c *counter) took(n int) error {
	if c.left.Add(int64(-n)) == 0 {
		c.done <- struct{}{}
	}
	return nil
}

func BenchmarkCommands(b *testing.B) {
	h, k := benchHub(b)
	c := newCounter()
	run(b, func(ctx context.Context) error {
		return k.Commands(ctx, commands.QueueRun, most(64), func(_ context.Context, got []Command) error { return c.took(len(got)) })
	})
	const n = 256
	for b.Loop() {
		c.left.Store(n)
		requireSent(b, h.Publish(b.Context(), benchCommands("attic", n)))
		<-c.done
	}
	perMessage(b, n)
}

// These two measure reading alone, from queues that are full.

func BenchmarkDrainCommands(b *testing.B) {
	const n = 10_000
	for b.Loop() {
		b.StopTimer()
		h, k := benchHub(b)
		requireSent(b, h.Publish(b.Context(), benchCommands("attic", n)))
		c := newCounter()
		c.left.Store(n)
		b.StartTimer()
		run(b, func(ctx context.Context) error {
			return k.Commands(ctx, commands.QueueRun, most(64), func(_ context.Context, got []Command) error { return c.took(len(got)) })
		})
		<-c.done
	}
	perMessage(b, n)
}

func BenchmarkDrainReports(b *testing.B) {
	const n = 10_000
	for b.Loop() {
		b.StopTimer()
		h, k := benchHub(b)
		requireSent(b, k.Publish(b.Context(), benchReports(n)))
		c := newCounter()
		c.left.Store(n)
		b.StartTimer()
		run(b, func(ctx context.Context) error {
			return h.Reports(ctx, "attic", most(500), func(_ context.Context, got []Report) error { return c.took(len(got)) })
		})
		<-c.done
	}
	perMessage(b, n)
}

func BenchmarkRoundTrip(b *testing.B) {
	h, k := benchHub(b)
	back := make(chan struct{}, 1)
	run(b, func(ctx context.Context) error {
		return k.Commands(ctx, commands.QueueRun, most(64), func(ctx context.Context, c []Command) error {
			requireSent(b, k.Publish(ctx, []Report{{Queue: commands.QueueEvents, ID: rand.Text(), Envelope: c[0].Envelope}}))
			return nil
		})
	})
	run(b, func(ctx context.Context) error {
		return h.Reports(ctx, "attic", most(100), func(context.Context, []Report) error { back <- struct{}{}; return nil })
	})
	for b.Loop() {
		requireSent(b, h.Publish(b.Context(), benchCommands("attic", 1)))
		<-back
	}
}

// A hub that starts again with many peers, and whether it is quiet then: the
// processor time that a second without any traffic takes.
func BenchmarkBoot(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprintf("peers=%d", n), func(b *testing.B) {
			h := startHub(b, nil)
			for b.Loop() {
				h.Close()
				h = startHub(b, func(h *Hub) { admit(b, h, ids("peer", n)...) })
			}
			b.StopTimer()
			for _, conn := range ids("peer", n) {
				run(b, func(ctx context.Context) error { return h.Reports(ctx, conn, most(100), nil) })
				run(b, func(ctx context.Context) error { return h.Logs(ctx, conn, most(100), nil) })
			}
			const quiet = pullExpiry + 10*time.Second
			time.Sleep(quiet / 8) // until the readers read
			before := processorTime(b)
			time.Sleep(quiet)
			b.ReportMetric(float64((processorTime(b)-before).Microseconds())/1000/quiet.Seconds(), "ms-cpu/idle-s")
		})
	}
}

func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func BenchmarkLinks(b *testing.B) {
	const n = 100
	for b.Loop() {
		h := startHub(b, nil)
		for i := range n {
			name := fmt.Sprintf("spoke-%d", i)
			admit(b, h, name)
			run(b, newLink(b, h, name).Run)
		}
		eventually(b, func() bool { return len(h.Peers()) == n }, "all links")
		h.Close()
	}
}
