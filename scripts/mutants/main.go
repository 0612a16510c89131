// Command mutants breaks the promises of this code one at a time, each by one edit, and runs the test that must fail.
// The edits are in breaks.yaml. Nothing in the checkout changes: the compiler reads the edited file through an overlay.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	names := flag.String("run", "", "only the breaks whose name or file matches this `regexp`")
	at := flag.Int("j", 2, "how many at a time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, *names, *at)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// run tries all breaks that match, and fails unless each one is caught.
func run(ctx context.Context, out io.Writer, names string, at int) error {
	match, err := regexp.Compile(names)
	if err != nil {
		return err
	}
	root, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	all, err := read(filepath.Join(root, list))
	if err != nil {
		return err
	}
	var chosen []Break
	for _, b := range all {
		if match.MatchString(b.Name) || match.MatchString(b.File) {
			chosen = append(chosen, b)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("no break in %s matches %q", list, names)
	}
	if err := unbroken(ctx, root, chosen); err != nil {
		return err
	}
	verdicts := tryAll(ctx, out, root, chosen, at)
	if n := verdicts[caught]; n < len(chosen) {
		return fmt.Errorf("%d of %d caught, %d survived, %d invalid", n, len(chosen), verdicts[survived], verdicts[invalid])
	}
	fmt.Fprintf(out, "all %d caught\n", len(chosen))
	return nil
}

// tryAll says how each break ended, in any order, and counts the verdicts.
func tryAll(ctx context.Context, out io.Writer, root string, breaks []Break, at int) map[verdict]int {
	results := make(chan result)
	go func() {
		defer close(results)
		var g errgroup.Group
		g.SetLimit(at)
		for _, b := range breaks {
			g.Go(func() error {
				began := time.Now()
				v, said := b.try(ctx, root)
				results <- result{b, v, said, time.Since(began)}
				return nil
			})
		}
		_ = g.Wait()
	}()
	verdicts := map[verdict]int{}
	for r := range results {
		verdicts[r.verdict]++
		fmt.Fprintf(out, "%-8s %4.0f s  %s (%s)\n", r.verdict, r.took.Seconds(), r.Name, r.Test)
		if r.verdict != caught {
			fmt.Fprintf(out, "%s\n", r.said)
		}
	}
	return verdicts
}

type result struct {
	Break
	verdict verdict
	said    string
	took    time.Duration
}

var errNotOnce = errors.New("the text must be in the file exactly once")
