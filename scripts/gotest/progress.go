package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// An event is one line of go test -json, as far as it is shown.
type event struct {
	Action     string
	Package    string
	Test       string // empty: the event is the package's
	Output     string
	ImportPath string // of what is built
	Elapsed    float64
}

// progress is what is known about a run.
type progress struct {
	out     io.Writer
	total   int
	ended   int
	tests   int
	failed  []string
	running map[string]*pkg
	last    time.Time // when something was printed
}

// A pkg is one package under test.
type pkg struct {
	tests  int               // that have ended
	output map[string]string // of those that have not ended; of the package itself under ""
}

func newProgress(out io.Writer, total int) *progress {
	return &progress{out: out, total: total, running: map[string]*pkg{}, last: time.Now()}
}

func (p *progress) say(format string, args ...any) {
	fmt.Fprintf(p.out, format, args...)
	p.last = time.Now()
}

func (p *progress) take(e event) {
	if e.Action == "build-output" {
		p.say("%s", e.Output)
		return
	}
	if e.Package == "" {
		return
	}
	at := p.running[e.Package]
	if at == nil {
		at = &pkg{output: map[string]string{}}
		p.running[e.Package] = at
	}
	switch e.Action {
	case "output":
		at.output[e.Test] += e.Output
	case "pass", "fail", "skip":
		if e.Test == "" {
			p.end(e, at)
			return
		}
		at.tests++
		if e.Action != "pass" {
			p.say("%s", at.output[e.Test]) // a skip too: it says why
		}
		delete(at.output, e.Test)
	}
}

// end is the end of a package.
func (p *progress) end(e event, at *pkg) {
	delete(p.running, e.Package)
	p.ended++
	p.tests += at.tests
	word, name := "ok", short(e.Package)
	switch {
	case e.Action == "fail":
		word = "FAIL"
		p.failed = append(p.failed, name)
		for _, test := range slices.Sorted(maps.Keys(at.output)) { // one that panicked has not ended
			p.say("%s", at.output[test])
		}
	case e.Action == "skip":
		word = "none"
	case strings.Contains(at.output[""], "(cached)"):
		word = "same"
	}
	p.say("[%*d/%d] %-4s %-24s %4d tests %7.1f s\n", len(fmt.Sprint(p.total)), p.ended, p.total, word, name, at.tests, e.Elapsed)
}

// remind names what runs, when nothing was printed for a while.
func (p *progress) remind() {
	if time.Since(p.last) < quiet {
		return
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(p.running)) {
		names = append(names, fmt.Sprintf("%s (%d tests ended)", short(name), p.running[name].tests))
	}
	if len(names) == 0 {
		names = []string{"the compiler"}
	}
	p.say("  still running: %s\n", strings.Join(names, ", "))
}

func (p *progress) summary() {
	fmt.Fprintf(p.out, "%d tests in %d of %d packages", p.tests, p.ended, p.total)
	if len(p.failed) > 0 {
		slices.Sort(p.failed)
		fmt.Fprintf(p.out, "; failed: %s", strings.Join(p.failed, ", "))
	}
	fmt.Fprintln(p.out)
}

// short is a package's path in this module.
func short(path string) string {
	return strings.TrimPrefix(path, "github.com/spawnmesh/spawnmesh/")
}
