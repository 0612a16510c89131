// Command peers measures spawns beside what else could do them.
//
//	peers bare     a pipeline that does nothing but what a spawn cannot do without
//	peers nex      a node of Nex, which starts workloads over NATS as well
//	peers accept   the same order at two hubs, one of which has a long history
//	peers read     the same questions at two hubs, one of which has a long history and many agents
//
// Both sides of a comparison do the same number of spawns in one run, in turns, each in
// processes of its own: a slow minute of the machine meets both.
//
// It is a module of its own, so that the product knows neither the libraries that it
// hides behind its rooms nor its peers.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"syscall"

	"github.com/spawnmesh/spawnmesh/internal/bench"
)

// An options is what the command line asks for.
type options struct {
	bin      string // the mesh's program
	json     string // file for what was found; empty for none
	rounds   int
	count    int // spawns a round
	inFlight int
	nex      string // program of Nex
	history  int    // mirrors that have ended
	running  int    // mirrors of agents that run, of read
	result   bool   // of contend: the end of a spawn is reported as well
}

var measures = map[string]func(context.Context, options) error{"bare": compareBare, "contend": contend, "nex": compareNex, "accept": accept, "read": read}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := dispatch(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func dispatch(ctx context.Context, args []string) error {
	if len(args) == 0 || measures[args[0]] == nil {
		return errors.New("name what to measure: bare, nex, accept or read")
	}
	var o options
	f := flag.NewFlagSet("peers "+args[0], flag.ContinueOnError)
	f.StringVar(&o.bin, "bin", "../../../bin/spawnmesh", "the mesh's program")
	f.StringVar(&o.json, "json", "", "write everything that was found to this file")
	f.IntVar(&o.rounds, "rounds", 3, "rounds; figures are medians over them")
	f.IntVar(&o.count, "count", 4000, "spawns or orders in a round")
	f.IntVar(&o.inFlight, "in-flight", 256, "how many are under way at a time")
	f.StringVar(&o.nex, "nex", os.Getenv("NEX"), "the program nex, version 0.4 (default: $NEX)")
	f.IntVar(&o.history, "history", 1_000_000, "orders that have ended, at the hub with a long history")
	f.IntVar(&o.running, "running", 10_000, "of read: agents that run, at the hub with a long history")
	f.BoolVar(&o.result, "result", false, "of contend, one run of the bare pipeline: report the end of a spawn as well")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	if f.NArg() > 0 || o.rounds < 1 || o.count < 1 || o.inFlight < 1 || o.history < 1 || o.running < 1 {
		return fmt.Errorf("numbers are at least 1, and nothing follows the flags: see peers %s -help", args[0])
	}
	return measures[args[0]](ctx, o)
}

// ours measures spawns of the mesh with its own program.
func ours(ctx context.Context, o options, runtime string, count int, inFlight ...int) (found bench.Spawns, err error) {
	args := []string{"bench", "spawn", "-o", "json", "--runtime", runtime, "--count", strconv.Itoa(count)}
	for _, n := range inFlight {
		args = append(args, "--in-flight", strconv.Itoa(n))
	}
	return found, child(ctx, &found, o.bin, args...)
}

// child runs a program that prints JSON.
func child(ctx context.Context, into any, program string, args ...string) error {
	c := exec.CommandContext(ctx, program, args...)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return fmt.Errorf("running %s: %w", program, err)
	}
	if err := json.Unmarshal(out, into); err != nil {
		return fmt.Errorf("reading what %s found: %w", program, err)
	}
	return nil
}

// quantile returns the value below which the part q of list is.
func quantile(list []float64, q float64) float64 {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// median is that of what of returns for each of list.
func median[T any](list []T, of func(T) float64) float64 {
	values := make([]float64, len(list))
	for i, v := range list {
		values[i] = of(v)
	}
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
