// Package bench measures a mesh on this machine: the throughput and latency of
// spawns beside the parts that one is made of, and the memory of what is idle.
//
// No test runs it: its figures are for people, and make bench asks for them.
package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/bench/record"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/internal/instance"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// Options say what is measured.
type Options struct {
	InFlight []int                            // spawns under way at a time
	Count    int                              // spawns per measurement; 0: 60 and 40 for each in flight
	Runtime  string                           // exec (a real process) or noop (none)
	Parts    instance.Options                 // the instance that measures the parts; its directory is chosen here
	Say      func(format string, args ...any) // hears what is being measured
}

// Spawn measures spawns on a hub and a spoke of their own, and the parts that one is made of.
func Spawn(ctx context.Context, o Options) (b Spawns, err error) {
	b.Origin, b.Runtime = record.Here(), o.Runtime
	m, err := open(ctx, slices.Max(append([]int{4}, o.InFlight...)))
	if m != nil {
		defer func() { err = errors.Join(err, m.Stop(ctx)) }()
	}
	if err != nil {
		return b, err
	}
	if _, err := measure(ctx, m, 4, 40, o.Runtime); err != nil { // warm up
		return b, err
	}
	for _, n := range o.InFlight {
		f, err := o.figure(ctx, m, n)
		if err != nil {
			return b, err
		}
		b.Figures = append(b.Figures, f)
		if n == 1 { // near in time: a slow minute of the machine meets both
			if err := b.compareParts(ctx, o, m.Dir); err != nil {
				return b, err
			}
			b.Ratio = f.StartP50 / b.Sum
		}
	}
	if len(b.Parts) == 0 {
		if err := b.compareParts(ctx, o, m.Dir); err != nil {
			return b, err
		}
	}
	if o.Runtime == commands.RuntimeExec {
		o.Say("processes under their shims alone ...")
		if b.Limit, err = startsPerSecond(ctx, filepath.Join(m.Dir, "alone"), b.Most().InFlight); err != nil {
			return b, err
		}
	}
	if b.Limit > 0 {
		b.OfLimit = b.Most().PerSec / b.Limit
	}
	return b, nil
}

// figure measures spawns with n in flight.
func (o Options) figure(ctx context.Context, m *fleet.Mesh, n int) (f Figure, err error) {
	spawns := o.Count
	if spawns == 0 {
		spawns = 60 + 40*n
	}
	o.Say("%d spawns, %d in flight ...", spawns, n)
	before, err := used(m)
	if err != nil {
		return f, err
	}
	if f, err = measure(ctx, m, n, spawns, o.Runtime); err != nil {
		return f, err
	}
	after, err := used(m)
	f.CPU = after.since(before, spawns)
	return f, err
}

// compareParts measures what a spawn is made of.
func (b *Spawns) compareParts(ctx context.Context, o Options, dir string) error {
	o.Say("the parts alone ...")
	o.Parts.Dir = filepath.Join(dir, "parts")
	if err := b.measureParts(ctx, o.Parts); err != nil {
		return err
	}
	for _, p := range b.Parts {
		b.Sum += p.Total()
	}
	return nil
}

// open starts a hub and a spoke that allows everything.
func open(ctx context.Context, slots int, hubArgs ...string) (*fleet.Mesh, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	m, err := fleet.New(ctx, self, "bench", hubArgs...)
	if err != nil {
		return m, err
	}
	return m, m.AddSpoke(ctx, "attic", policy.Presets["open"], "--slots", strconv.Itoa(slots))
}

// measure keeps n spawns under way until spawns have ended.
func measure(ctx context.Context, m *fleet.Mesh, n, spawns int, how string) (Figure, error) {
	var mu sync.Mutex // guards starts, ends and errs
	var starts, ends []float64
	var errs []error
	next := make(chan int)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for range next {
				v, err := one(ctx, m, how)
				mu.Lock()
				if err != nil {
					errs = append(errs, err)
				} else {
					starts, ends = append(starts, ms(v.StartedTold.Sub(v.CreatedAt))), append(ends, ms(v.EndedTold.Sub(v.CreatedAt)))
				}
				mu.Unlock()
			}
		})
	}
	began := time.Now()
	for i := range spawns {
		next <- i
	}
	close(next)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return Figure{}, err
	}
	return Figure{InFlight: n, Spawns: spawns, PerSec: float64(spawns) / time.Since(began).Seconds(),
		StartP50: quantile(starts, 0.5), StartP99: quantile(starts, 0.99), EndP50: quantile(ends, 0.5), EndP99: quantile(ends, 0.99)}, nil
}

// one spawns an agent that does nothing and waits for its result.
func one(ctx context.Context, m *fleet.Mesh, how string) (hub.AgentView, error) {
	s := commands.Spawn{Runtime: how}
	if how == commands.RuntimeExec {
		s.Argv = []string{"true"}
	}
	var got hub.SpawnAnswer
	var v hub.AgentView
	if err := m.Ctl.Do(ctx, "POST", "/api/v1/tasks", hub.SpawnRequest{Spoke: "attic", Spawn: s}.Revealed(), &got); err != nil {
		return v, err
	}
	for !v.State.Terminal() {
		if err := m.Ctl.Do(ctx, "GET", "/api/v1/tasks/"+got.ID+"?wait=30s", nil, &v); err != nil {
			return v, err
		}
	}
	if v.State != commands.Completed || v.StartedTold == nil {
		return v, fmt.Errorf("agent %s %s", got.ID, v.Sentence())
	}
	return v, nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// quantile returns the value below which the part q of list is.
func quantile(list []float64, q float64) float64 {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
