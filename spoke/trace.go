package spoke

import (
	"strconv"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/tracing"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// What spans say is in the log, too; see there.

// trace is the context of the span of an attempt's run, "" where its order has none. The agent gets it.
func (r *run) trace() string {
	return tracing.Named(r.spec.Trace, "run "+strconv.Itoa(r.fence.Attempt))
}

func (r *run) about(more ...string) []string {
	return append([]string{"task", r.fence.Task, "attempt", strconv.Itoa(r.fence.Attempt)}, more...)
}

// traceTaken tells which orders of a batch are here now.
func (s *Spoke) traceTaken(batch []*store.Incoming) {
	for _, m := range batch {
		spawn, ok := m.Body.(*commands.Spawn)
		if !s.Tracer.On() || !ok || m.Code == signing.ReplaySame {
			continue
		}
		now := time.Now()
		s.Tracer.Tell(tracing.Span{Name: "take", Self: tracing.Named(spawn.Trace, "take "+m.Header.ID), Parent: spawn.Trace, From: now, To: now,
			About: []string{"task", spawn.Task}, Problem: string(m.Code)})
	}
}

// traceStart tells how long an agent took from its claim to its start.
func (s *Spoke) traceStart(r *run) {
	s.Tracer.Tell(tracing.Span{Name: "start", Self: tracing.Named(r.spec.Trace, "start "+strconv.Itoa(r.fence.Attempt)), Parent: r.spec.Trace,
		From: r.from, To: time.Now(), About: r.about()})
}

// traceRun tells of an agent from its start to its end.
func (s *Spoke) traceRun(r *run, e backlog.End) {
	if r.ran.IsZero() {
		return
	}
	until, problem := time.Now(), string(e.Outcome)
	if !e.At.IsZero() {
		until = e.At
	}
	if e.Outcome == commands.Succeeded {
		problem = ""
	}
	s.Tracer.Tell(tracing.Span{Name: "run", Self: r.trace(), Parent: r.spec.Trace, From: r.ran, To: until, Problem: problem,
		About: r.about("outcome", string(e.Outcome))})
}
