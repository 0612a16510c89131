package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/spawnmesh/spawnmesh/internal/bench"
	"github.com/spawnmesh/spawnmesh/internal/bench/record"
)

// A nexRound is one round: starts are a second.
type nexRound struct {
	Ours bench.Figure `json:"ours"`
	Nex  nexFigure    `json:"nex"`
}

// A nexFigure is what Nex did; times are milliseconds, from the auction to the answer that
// the workload was started.
type nexFigure struct {
	InFlight int     `json:"in_flight"`
	Starts   int     `json:"starts"`
	PerSec   float64 `json:"starts_per_second"`
	StartP50 float64 `json:"start_p50_ms"`
	StartP99 float64 `json:"start_p99_ms"`
}

func (r nexRound) ratio() float64 { return r.Ours.PerSec / r.Nex.PerSec }

// A nexResult is a whole run.
type nexResult struct {
	record.Origin
	Wait   float64    `json:"auction_wait_ms"`
	Rounds []nexRound `json:"rounds"`
	Ours   float64    `json:"ours_per_second"` // medians over the rounds
	Nex    float64    `json:"nex_per_second"`
	Ratio  float64    `json:"ratio"`
}

// compareNex starts the same program with the mesh and with a node of Nex, in turns.
// Of the mesh a spawn counts when its result is known, of Nex when it says that the
// workload was started.
func compareNex(ctx context.Context, o options) error {
	if o.nex == "" {
		return errors.New("name the program of Nex, version 0.4, with -nex or in NEX; github.com/synadia-io/nex says how it is installed")
	}
	r := nexResult{Origin: record.Here(), Wait: float64(auctionWait.Milliseconds())}
	for i := range o.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", i+1, o.rounds)
		mesh, err := ours(ctx, o, "exec", o.count, o.inFlight)
		if err != nil {
			return err
		}
		found := nexRound{Ours: mesh.Figures[0]}
		if found.Nex, err = measureNex(ctx, o); err != nil {
			return err
		}
		r.Rounds = append(r.Rounds, found)
	}
	r.Ours = median(r.Rounds, func(r nexRound) float64 { return r.Ours.PerSec })
	r.Nex = median(r.Rounds, func(r nexRound) float64 { return r.Nex.PerSec })
	r.Ratio = median(r.Rounds, nexRound.ratio)
	fmt.Printf("starts of /bin/true a second, %d in flight\n  the mesh %.0f\n  Nex      %.0f (its client's auction wait: %s)\n  the mesh to Nex: %.2f (target: at least 8)\n", o.inFlight, r.Ours, r.Nex, auctionWait, r.Ratio)
	return record.Write(o.json, r)
}

// measureNex runs a message server and a node, and starts workloads with it.
func measureNex(ctx context.Context, o options) (f nexFigure, err error) {
	dir, err := tempDir("nex")
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := serve(dir)
	if err != nil {
		return f, err
	}
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	stop, err := startNode(ctx, o.nex, s.ClientURL(), dir)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	conn, err := nats.Connect(s.ClientURL())
	if err != nil {
		return f, fmt.Errorf("connecting to the NATS server: %w", err)
	}
	defer conn.Close()
	c := nexClient{conn}
	if err := c.await(ctx, filepath.Join(dir, "log")); err != nil {
		return f, err
	}
	if _, err := c.starts(ctx, 4, 20); err != nil { // warm up
		return f, err
	}
	return c.starts(ctx, o.inFlight, o.count)
}

// startNode runs a node with its agent for native programs, and returns what ends it.
func startNode(ctx context.Context, program, server, dir string) (stop func() error, err error) {
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c := exec.CommandContext(ctx, program, "-s", server, "node", "up")
	c.Stdout, c.Stderr = log, log
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", program, err)
	}
	return func() error {
		_ = c.Process.Signal(os.Interrupt)
		late := time.AfterFunc(10*time.Second, func() { _ = c.Process.Kill() })
		defer late.Stop()
		_ = c.Wait() // how a peer ends is its own affair
		return nil
	}, nil
}

// starts keeps n starts under way until count are done.
func (c nexClient) starts(ctx context.Context, n, count int) (f nexFigure, err error) {
	times := make([]float64, count)
	var g errgroup.Group
	g.SetLimit(n)
	began := time.Now()
	for i := range count {
		g.Go(func() error {
			at := time.Now()
			err := c.start(ctx)
			times[i] = float64(time.Since(at).Microseconds()) / 1000
			return err
		})
	}
	err = g.Wait()
	return nexFigure{InFlight: n, Starts: count, PerSec: float64(count) / time.Since(began).Seconds(), StartP50: quantile(times, 0.5), StartP99: quantile(times, 0.99)}, err
}
