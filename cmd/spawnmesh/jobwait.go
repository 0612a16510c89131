package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

// await waits for all agents that were ordered, and says of each how it ended. The exit code is the highest.
func (o *jobOrders) await(ctx context.Context, c *control.Client) error {
	a, left := o.a, o.given
	w := &watch{a: a, c: c, known: true}
	var ended []hub.AgentView
	for len(left) > 0 {
		var still []jobAnswer
		for i, job := range left {
			w.id = job.ID
			v, err := w.look(ctx, pauseFor(i))
			if err == nil && v.State.Terminal() {
				ended = append(ended, v)
				o.ended(v, job)
				continue
			}
			if err := w.bear(ctx, err); err != nil {
				return o.detached(err, len(left)-i+len(still), ended)
			}
			still = append(still, job)
		}
		left = still
	}
	if a.output == "json" {
		if err := a.printJSON(ended); err != nil {
			return err
		}
	}
	return codeOr(o.code)
}

// pauseFor is how long is waited for an end before the next agent is looked at: one for all of a round.
func pauseFor(i int) time.Duration {
	if i == 0 {
		return time.Second
	}
	return 0
}

// ended says how an agent ended.
func (o *jobOrders) ended(v hub.AgentView, job jobAnswer) {
	if code, ok := errors.AsType[exitCode](resultCode(v)); ok {
		o.code = max(o.code, int(code))
	}
	switch a := o.a; a.output {
	case "json":
	case "ndjson":
		_ = a.printLine(v)
	case "name":
		fmt.Fprintln(a.out, v.Task)
	default:
		fmt.Fprintln(a.out, printable(fmt.Sprintf("%s  %s  %s", job.ShortID, v.InWords(), job.Job)))
	}
}

// detached says that a wait has ended before its agents.
func (o *jobOrders) detached(err error, left int, ended []hub.AgentView) error {
	if o.a.output == "json" {
		if err := printList(o.a, ended, table{}); err != nil {
			return err
		}
	}
	r := refusal(err)
	return commands.Refuse(r.Code, "agents of these jobs that have not ended: %d; %s", left, r.Why).Hinting("see: %s agents", o.a.self())
}
