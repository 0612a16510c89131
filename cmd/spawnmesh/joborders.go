package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

// jobsAtOnce is how many jobs of a file are ordered at a time.
const jobsAtOnce = 4

// A jobAnswer is what became of a job.
type jobAnswer struct {
	hub.SpawnAnswer
	Job string `json:"job"` // where it is in the file
}

// jobOrders are orders under way. What is said of them is said in the order of the file.
type jobOrders struct {
	a     *app
	file  *jobFile
	wait  bool
	mu    sync.Mutex // guards the rest
	next  int        // to be ordered
	said  int        // before which all was said
	ends  []jobEnd
	given []jobAnswer
	code  int
	quit  bool // the hub is not there: nothing more is ordered
}

// A jobEnd is what came of one order.
type jobEnd struct {
	over   bool
	answer hub.SpawnAnswer
	err    error
}

// orderJobs orders several jobs, a few at a time.
func (a *app) orderJobs(ctx context.Context, file *jobFile, f spawnFlags) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	o := &jobOrders{a: a, file: file, wait: f.wait, ends: make([]jobEnd, len(file.jobs))}
	var work sync.WaitGroup
	for range min(jobsAtOnce, len(file.jobs)) {
		work.Go(func() { o.work(ctx, c) })
	}
	work.Wait()
	o.rest(ctx)
	if f.wait && len(o.given) > 0 && ctx.Err() == nil {
		ctx, done := f.bounded(ctx)
		defer done()
		return o.await(ctx, c)
	}
	if err := o.print(); err != nil {
		return err
	}
	return codeOr(o.code)
}

// codeOr is an exit code as an error; nil for 0.
func codeOr(code int) error {
	if code == 0 {
		return nil
	}
	return exitCode(code)
}

func (o *jobOrders) work(ctx context.Context, c *control.Client) {
	for {
		o.mu.Lock()
		i := o.next
		if i == len(o.file.jobs) || o.quit || ctx.Err() != nil {
			o.mu.Unlock()
			return
		}
		o.next++
		o.mu.Unlock()
		answer, err := orderTask(ctx, c, o.file.jobs[i].req)
		o.mu.Lock()
		o.ends[i] = jobEnd{true, answer, err}
		o.quit = o.quit || commands.CodeOf(err) == commands.Unreachable
		for o.said < len(o.ends) && o.ends[o.said].over {
			o.say(o.said)
			o.said++
		}
		o.mu.Unlock()
	}
}

// say says what came of a job. The caller holds mu.
func (o *jobOrders) say(i int) {
	a, end, j := o.a, o.ends[i], o.file.jobs[i]
	if end.err != nil {
		r := refusal(end.err)
		code := a.printError(&commands.Refused{Code: r.Code, Why: j.at + ": " + r.Why, Hint: r.Hint, Run: r.Run})
		o.code = max(o.code, code)
		return
	}
	answer := jobAnswer{end.answer, j.at}
	o.given = append(o.given, answer)
	a.did("%d agents were ordered; see: %s", len(o.given), a.line("agents"))
	if o.wait && a.forPeople() {
		fmt.Fprintf(a.err, "agent %s was ordered on %s\n", answer.ShortID, answer.Spoke)
	} else if !o.wait {
		o.show(answer, j)
	}
}

// show prints an order as it was given; JSON as a whole comes when all are.
func (o *jobOrders) show(v jobAnswer, j *job) {
	switch a := o.a; a.output {
	case "json":
	case "ndjson":
		_ = a.printLine(v) // heard by who prints the answer
	case "name":
		fmt.Fprintln(a.out, v.ID)
	default:
		before := ""
		if v.Existing {
			before = "  (ordered before)"
		}
		fmt.Fprintln(a.out, printable(v.ShortID+"  "+v.Spoke+"  "+j.what()+before))
	}
}

// what names a job for people.
func (j *job) what() string {
	switch {
	case j.req.Spawn.Title != "":
		return j.req.Spawn.Title
	case len(j.req.Spawn.Argv) > 0:
		return strings.ReplaceAll(commands.ShellLine(j.req.Spawn.Argv), "\n", " ")
	}
	return j.req.Spawn.Runtime
}

// rest says which jobs were not ordered, once nothing more is.
func (o *jobOrders) rest(ctx context.Context) {
	for ; o.said < len(o.ends); o.said++ { // behind the first that was not tried
		if o.ends[o.said].over {
			o.say(o.said)
		}
	}
	left := len(o.file.jobs) - o.next
	if ctx.Err() == nil && left == 0 {
		return
	}
	a := o.a
	fmt.Fprintf(a.err, "%d of %d jobs were ordered", len(o.given), len(o.file.jobs))
	if left > 0 {
		fmt.Fprintf(a.err, "; those from %s on were not tried", o.file.jobs[o.next].at)
	}
	fmt.Fprintln(a.err)
	if ctx.Err() != nil {
		o.code = exitInterrupted
	}
	if o.file.jobs[0].req.IdempotencyKey != "" {
		fmt.Fprintln(a.err, "the same line with its --idempotency-key orders what is missing")
	}
}

// print prints all orders at once, where a program wants them so.
func (o *jobOrders) print() error {
	if o.a.output != "json" {
		return nil
	}
	return printList(o.a, o.given, table{})
}
