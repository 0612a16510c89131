package main

import (
	"context"
	"fmt"
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
	keyed bool       // the line has a key, and each job a part of it by its place
	mu    sync.Mutex // guards the rest
	next  int        // to be ordered
	said  int        // before which all was said
	ends  []jobEnd
	given int // of those how many were ordered
	code  int
	quit  bool // nothing more is ordered: the hub is not there, or the file is another one than the line's key was used for
	other bool // it is another one
}

// A jobEnd is what came of one order.
type jobEnd struct {
	over   bool
	answer hub.SpawnAnswer
	err    error
	seen   *hub.AgentView // as the agent was seen last, by who waits
}

// orderJobs orders several jobs, a few at a time.
func (a *app) orderJobs(ctx context.Context, c *control.Client, file *jobFile, f spawnFlags) error {
	o := &jobOrders{a: a, file: file, wait: f.wait, keyed: f.req.IdempotencyKey != "", ends: make([]jobEnd, len(file.jobs))}
	o.repeat(ctx, c)
	var work sync.WaitGroup
	for range min(jobsAtOnce, len(file.jobs)) {
		work.Go(func() {
			for o.one(ctx, c) {
			}
		})
	}
	work.Wait()
	o.rest(ctx)
	if f.wait && o.given > 0 {
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

// repeat orders one job after the other as long as all were ordered before, so that nothing behind a job that the file did
// not have then is ordered again under another part of the key.
func (o *jobOrders) repeat(ctx context.Context, c *control.Client) {
	for o.keyed && o.one(ctx, c) && o.ends[o.next-1].answer.Existing {
	}
}

// one orders the next job, and reports whether there was one.
func (o *jobOrders) one(ctx context.Context, c *control.Client) bool {
	o.mu.Lock()
	i := o.next
	if i == len(o.file.jobs) || o.quit || ctx.Err() != nil {
		o.mu.Unlock()
		return false
	}
	o.next++
	o.mu.Unlock()
	answer, err := orderTask(ctx, c, o.file.jobs[i].req)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ends[i] = jobEnd{over: true, answer: answer, err: err}
	o.other = o.other || o.keyed && commands.CodeOf(err) == commands.Idempotency
	o.quit = o.quit || o.other || commands.CodeOf(err) == commands.Unreachable
	for o.said < len(o.ends) && o.ends[o.said].over {
		o.say(o.said)
		o.said++
	}
	return true
}

// rest says which jobs were not ordered, once nothing more is.
func (o *jobOrders) rest(ctx context.Context) {
	for ; o.said < len(o.ends); o.said++ { // behind the first that was not tried
		if o.ends[o.said].over {
			o.say(o.said)
		}
	}
	left := len(o.file.jobs) - o.next
	if ctx.Err() == nil && left == 0 && !o.other {
		return
	}
	a := o.a
	fmt.Fprintf(a.err, "%d of %d jobs were ordered", o.given, len(o.file.jobs))
	if left > 0 {
		fmt.Fprintf(a.err, "; those from %s on were not tried", o.file.jobs[o.next].at)
	}
	fmt.Fprintln(a.err)
	if ctx.Err() != nil {
		o.code = exitInterrupted
	}
	switch {
	case o.other:
		fmt.Fprintln(a.err, "a file that was changed wants another --idempotency-key, or an idempotency_key in each job, which stays with it")
	case o.file.jobs[0].req.IdempotencyKey != "":
		fmt.Fprintln(a.err, "the same line with its --idempotency-key orders what is missing")
	}
}
