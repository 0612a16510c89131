package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/internal/bench"
	"github.com/spawnmesh/spawnmesh/internal/bench/record"
)

// A bareFigure is what the pipeline did with some spawns in flight; times are milliseconds.
type bareFigure struct {
	InFlight int     `json:"in_flight"`
	Spawns   int     `json:"spawns"`
	PerSec   float64 `json:"spawns_per_second"`
	StartP50 float64 `json:"start_p50_ms"`
	StartP99 float64 `json:"start_p99_ms"`
	CPU      float64 `json:"processor_time_ms"` // of one spawn, program and databases
	Own      float64 `json:"program_ms"`
	Postgres float64 `json:"postgres_ms"`
}

// A bareRound is one round of the comparison.
type bareRound struct {
	Ours   bench.Figure `json:"ours"`
	Bare   bareFigure   `json:"bare"`
	Result bareFigure   `json:"bare_with_result"`
}

func (r bareRound) ratio() float64 { return r.Ours.CPU.Total() / r.Bare.CPU }

func (r bareRound) ratioWithResult() float64 { return r.Ours.CPU.Total() / r.Result.CPU }

// A bareResult is a whole run.
type bareResult struct {
	record.Origin
	Rounds []bareRound `json:"rounds"`
	Median bareMedians `json:"medians"`
}

// bareMedians are over the rounds; ratios are medians of each round's own.
type bareMedians struct {
	Ours            float64 `json:"ours_ms"`
	Bare            float64 `json:"bare_ms"`
	Result          float64 `json:"bare_with_result_ms"`
	Ratio           float64 `json:"ratio"`
	RatioWithResult float64 `json:"ratio_with_result"`
}

// compareBare measures the processor time of one spawn of the mesh, without a process,
// beside that of the bare pipeline.
func compareBare(ctx context.Context, o options) error {
	r := bareResult{Origin: record.Here()}
	for i := range o.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", i+1, o.rounds)
		var found bareRound
		mesh, err := ours(ctx, o, "noop", o.count, o.inFlight)
		if err != nil {
			return err
		}
		found.Ours = mesh.Figures[0]
		if err := errors.Join(bareChild(ctx, &found.Bare, false, o), bareChild(ctx, &found.Result, true, o)); err != nil {
			return err
		}
		r.Rounds = append(r.Rounds, found)
	}
	r.Median = bareMedians{
		Ours:   median(r.Rounds, func(r bareRound) float64 { return r.Ours.CPU.Total() }),
		Bare:   median(r.Rounds, func(r bareRound) float64 { return r.Bare.CPU }),
		Result: median(r.Rounds, func(r bareRound) float64 { return r.Result.CPU }),
		Ratio:  median(r.Rounds, bareRound.ratio), RatioWithResult: median(r.Rounds, bareRound.ratioWithResult),
	}
	m, last := r.Median, r.Rounds[len(r.Rounds)-1]
	fmt.Printf("processor time of one spawn without a process, %d in flight\n", o.inFlight)
	fmt.Printf("  the mesh                           %.2f ms (last round: %.0f spawns/s)\n", m.Ours, last.Ours.PerSec)
	fmt.Printf("  bare pipeline                      %.3f ms (%.0f/s)   the mesh to it: %.1f (target: at most 4)\n", m.Bare, last.Bare.PerSec, m.Ratio)
	fmt.Printf("  the same, with the result reported %.3f ms (%.0f/s)   the mesh to it: %.1f\n", m.Result, last.Result.PerSec, m.RatioWithResult)
	return record.Write(o.json, r)
}

// bareChild runs the pipeline in a process of its own. Ten times the spawns: it is that
// much quicker, and Linux tells processor time in hundredths of a second.
func bareChild(ctx context.Context, into *bareFigure, result bool, o options) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return child(ctx, into, self, "contend", "-result="+strconv.FormatBool(result), "-in-flight", strconv.Itoa(o.inFlight), "-count", strconv.Itoa(10*o.count))
}

// contend is that process.
func contend(ctx context.Context, o options) (err error) {
	dir, err := tempDir("bare")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	hub, spoke, err := sides(ctx, dir)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, hub.close(context.WithoutCancel(ctx)), spoke.close(context.WithoutCancel(ctx)))
	}()
	b, err := newBus(ctx, dir)
	if err != nil {
		return err
	}
	defer b.close()
	p, err := newPipeline(hub, spoke, b, o.result)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- p.run(running) }()
	defer func() { stop(); err = errors.Join(err, <-ran) }()
	if _, err := p.measure(ctx, o.inFlight, o.count/10+1); err != nil { // warm up
		return err
	}
	f, err := p.measure(ctx, o.inFlight, o.count)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(f)
}

// measure keeps n spawns under way until count have ended.
func (p *pipeline) measure(ctx context.Context, n, count int) (f bareFigure, err error) {
	own, postgres, err := bench.Used(os.Getpid())
	if err != nil {
		return f, err
	}
	var mu sync.Mutex // guards starts and errs
	var starts []float64
	var errs []error
	next := make(chan struct{})
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for range next {
				o, err := p.spawn(ctx)
				mu.Lock()
				if errs = append(errs, err); err == nil {
					starts = append(starts, float64(o.start.Microseconds())/1000)
				}
				mu.Unlock()
			}
		})
	}
	began := time.Now()
	for range count {
		next <- struct{}{}
	}
	close(next)
	wg.Wait()
	f = bareFigure{InFlight: n, Spawns: count, PerSec: float64(count) / time.Since(began).Seconds(), StartP50: quantile(starts, 0.5), StartP99: quantile(starts, 0.99)}
	if err := errors.Join(errs...); err != nil {
		return f, err
	}
	ownNow, postgresNow, err := bench.Used(os.Getpid())
	f.Own, f.Postgres = (ownNow-own)/float64(count), (postgresNow-postgres)/float64(count)
	f.CPU = f.Own + f.Postgres
	return f, err
}
