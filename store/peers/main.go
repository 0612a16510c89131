// Command peers measures this project's backlog beside the queues people would
// use instead: a plain SKIP LOCKED table, River and graphile-worker.
//
// All of them do the same number of jobs that do nothing, in one run, on one
// private Postgres with the same settings, each in a database of its own and in
// a process of its own, one at a time. Rounds go through all contenders in turn,
// so that a slow minute of the machine meets each of them. Before every
// measurement the database is vacuumed, analysed and checkpointed, so that none
// pays for what another left behind.
//
// "peers curve" measures this project's backlog alone as it grows.
//
// It is a module of its own, so that the product does not depend on its peers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// names lists the contenders in the order in which a round runs them.
var names = []string{"raw", "river", "graphile", "ours"}

// An options is what the command line asks for.
type options struct {
	jobs     int
	rounds   int
	big      bool
	settings string   // of the server: a name in serverSettings
	json     string   // file for everything that was found; empty for none
	names    []string // who takes part
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := dispatch(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// dispatch runs one contender when this process was started as one, and the
// whole measurement otherwise.
func dispatch(ctx context.Context, args []string) error {
	if len(args) == 2 && args[0] == "contend" {
		return contend(ctx, args[1], os.Stdin, os.Stdout)
	}
	if len(args) > 0 && args[0] == "curve" {
		return curve(ctx, args[1:])
	}
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	return compare(ctx, o)
}

func parse(args []string) (options, error) {
	var o options
	var only, without string
	f := flag.NewFlagSet("peers", flag.ContinueOnError)
	f.IntVar(&o.jobs, "jobs", 100_000, "jobs each contender does in a round")
	f.IntVar(&o.rounds, "rounds", 3, "rounds; figures are medians over them")
	f.BoolVar(&o.big, "big", false, "also measure pickup while 1,000,000 jobs of lower priority wait")
	f.StringVar(&o.settings, "settings", "usual", "settings of the server: usual (128 MB of buffers, 1 GB of log) or shipped (this project's private server)")
	f.StringVar(&o.json, "json", "", "write everything that was found to this file")
	f.StringVar(&only, "only", "", "contenders to run, with commas between (of "+strings.Join(names, ", ")+")")
	f.StringVar(&without, "without", "", "contenders to leave out, with commas between")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 || o.jobs < 100 || o.rounds < 1 {
		return o, fmt.Errorf("-jobs is at least 100, -rounds at least 1, and nothing follows the flags: see -help")
	}
	var err error
	o.names, err = choose(only, without)
	return o, err
}

// choose returns the contenders that take part, in the order of names.
func choose(only, without string) ([]string, error) {
	in, out := split(only), split(without)
	for _, name := range append(slices.Clone(in), out...) {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("no contender is called %q: there are %s", name, strings.Join(names, ", "))
		}
	}
	var chosen []string
	for _, name := range names {
		if (len(in) == 0 || slices.Contains(in, name)) && !slices.Contains(out, name) {
			chosen = append(chosen, name)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("every contender is left out: name at least one of %s", strings.Join(names, ", "))
	}
	return chosen, nil
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}
