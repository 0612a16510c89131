// Command gotest runs "go test" with its arguments and shows how far it is: a line for each package as it ends, in any
// order, what failed, and now and then what is still running. Its exit code is go test's.
//
// With -quick before them it leaves out the tests that long.txt names, with -long it runs those alone.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"
)

// quiet is how long nothing may be printed before the packages that run are named.
const quiet = 15 * time.Second

func main() {
	code, err := run(os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

func run(args []string, out, errOut io.Writer) (int, error) {
	// An interrupt is for go test, which is in the same process group; we show what it still says.
	signal.Ignore(os.Interrupt)
	args, err := divide(args)
	if err != nil {
		return 0, err
	}
	total, err := count(args, errOut)
	if err != nil {
		return 0, err
	}
	fmt.Fprintf(out, "testing %d packages; compiling first\n", total)
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = errOut
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("starting go test: %w", err)
	}
	p := newProgress(out, total)
	readErr := p.follow(pipe)
	err = cmd.Wait()
	p.summary()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return max(1, exit.ExitCode()), nil // a signal has no code
	}
	return 0, errors.Join(err, readErr)
}

// count returns how many packages the arguments name: those that begin with a dot.
func count(args []string, errOut io.Writer) (int, error) {
	list := exec.Command("go", "list")
	for _, a := range args {
		if strings.HasPrefix(a, ".") {
			list.Args = append(list.Args, a)
		}
	}
	list.Stderr = errOut
	names, err := list.Output()
	if err != nil {
		return 0, fmt.Errorf("listing the packages to test: %w", err)
	}
	return len(strings.Fields(string(names))), nil
}

// follow reads the events until their end.
func (p *progress) follow(from io.Reader) error {
	events, ended := make(chan event), make(chan error, 1)
	go func() {
		defer close(events)
		for dec := json.NewDecoder(from); ; {
			var e event
			if err := dec.Decode(&e); errors.Is(err, io.EOF) {
				ended <- nil
				return
			} else if err != nil {
				_, _ = io.Copy(io.Discard, from) // or go test would wait for us
				ended <- fmt.Errorf("reading what go test says: %w", err)
				return
			}
			events <- e
		}
	}()
	beat := time.NewTicker(time.Second)
	defer beat.Stop()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return <-ended
			}
			p.take(e)
		case <-beat.C:
			p.remind()
		}
	}
}
