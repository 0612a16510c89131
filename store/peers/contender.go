package main

import (
	"context"
	"fmt"
	"time"
)

// A job does nothing, for a while.
type job struct {
	Number int  `json:"n"`
	Millis int  `json:"ms"` // how long it takes
	Low    bool `json:"-"`  // of lower priority than the others
}

// An about says what was measured: the version and the settings that matter.
type about struct {
	Version  string   `json:"version"`
	Settings string   `json:"settings"`
	Phases   []string `json:"phases"`
}

// maxConns is how many connections each contender may use.
const maxConns = 16

// A contender is one queue in this process.
type contender interface {
	// open connects, makes the schema, and returns what the contender is.
	open(ctx context.Context, url string) (about, error)
	insert(ctx context.Context, j job) error
	insertMany(ctx context.Context, jobs []job) error
	// work runs jobs, up to slots at a time, calling do for each, until ctx ends.
	// It returns when the jobs that have started are done.
	work(ctx context.Context, slots int, do func(job)) error
	// unfinished reports whether the database holds a job that is not done.
	unfinished(ctx context.Context) (bool, error)
	close()
}

// A held is a job that was claimed, with what its queue wants to see when it is done.
type held struct {
	job job
	ref any
}

// A puller is a queue whose claims and completions can be called, and therefore
// measured, one by one.
type puller interface {
	contender
	// claim takes up to n jobs. It returns fewer only when no more are there.
	claim(ctx context.Context, n int) ([]held, error)
	complete(ctx context.Context, jobs []held) error
	// empty removes all jobs.
	empty(ctx context.Context) error
	// notified is sent to when jobs may have come.
	notified() <-chan struct{}
}

// of returns the contender of that name that lives in a process of this program.
func of(name string) (contender, error) {
	switch name {
	case "raw":
		return &raw{}, nil
	case "river":
		return &peerRiver{}, nil
	case "ours":
		return newOurs()
	}
	return nil, fmt.Errorf("%q is no contender of this program", name)
}

// do keeps a job's slot for as long as the job takes.
func (j job) do() {
	if j.Millis > 0 {
		time.Sleep(time.Duration(j.Millis) * time.Millisecond)
	}
}
