package main

import (
	"context"
	"fmt"

	"github.com/spawnmesh/spawnmesh/commands"
)

// lasting is [app.lasting] for what runs: where nobody sits at the terminal, or programs read its
// log, the log says it.
func (r *runner) lasting(what string) *lasting {
	if terminal(r.a.err) && r.logs.format == "text" {
		return r.a.lasting(what)
	}
	return newLasting(what, inLines, func(text string) { r.log.Info("this takes a while", "doing", text) }, func() {})
}

// tellStop says from the end of ctx on what the stop waits for, until over is called.
func (r *runner) tellStop(ctx context.Context) (over func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-end:
			return
		case <-ctx.Done():
		}
		l := r.lasting("stopping")
		l.is(r.waitsFor)
		<-end
		l.done()
	}()
	return func() {
		close(end)
		<-ended
	}
}

// waitsFor says what a stop waits for.
func (r *runner) waitsFor() string {
	select {
	case <-r.working:
	default:
		return "stopping"
	}
	n := r.spoke.Running()
	if n == 0 {
		return "stopping"
	}
	return fmt.Sprintf("stopping: waiting for running agents (%d) for at most %s; a second interrupt leaves them to their shims", n, commands.Lasting(r.spoke.Drain))
}
