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

// A jobAgent is the agent of a job, as it was seen last.
type jobAgent struct {
	hub.AgentView
	Job      string `json:"job"`
	Existing bool   `json:"existing,omitempty"`
}

// await waits for all agents that were ordered, and says of each how it ended. The exit code is the highest.
func (o *jobOrders) await(ctx context.Context, c *control.Client) error {
	w := &watch{a: o.a, c: c, known: true}
	for left := o.open(); len(left) > 0; left = o.open() {
		for n, i := range left {
			w.id = o.ends[i].answer.ID
			v, err := w.look(ctx, pauseFor(n))
			if err == nil {
				o.ends[i].seen = &v
			}
			if err == nil && v.State.Terminal() {
				o.ended(i)
			} else if err := w.bear(ctx, err); err != nil {
				return o.detached(err)
			}
		}
	}
	if err := o.print(); err != nil {
		return err
	}
	return codeOr(o.code)
}

// open are the jobs whose agents are not known to have ended.
func (o *jobOrders) open() (list []int) {
	for i, end := range o.ends {
		if end.answer.ID != "" && end.err == nil && (end.seen == nil || !end.seen.State.Terminal()) {
			list = append(list, i)
		}
	}
	return list
}

// pauseFor is how long is waited for an end before the next agent is looked at: one for all of a round.
func pauseFor(i int) time.Duration {
	if i == 0 {
		return time.Second
	}
	return 0
}

// ended says how the agent of a job ended.
func (o *jobOrders) ended(i int) {
	v, j := o.ends[i].seen, o.file.jobs[i]
	if code, ok := errors.AsType[exitCode](resultCode(*v)); ok {
		o.code = max(o.code, int(code))
	}
	if o.a.forPeople() {
		fmt.Fprintln(o.a.out, printable(fmt.Sprintf("%s  %s  %s  %s", o.ends[i].answer.ShortID, v.InWords(), j.what(), j.at)))
		return
	}
	o.tell(i)
}

// detached says that a wait has ended before its agents. A program gets the ids of those that are open, too.
func (o *jobOrders) detached(err error) error {
	left := o.open()
	for _, i := range left {
		if !o.a.forPeople() {
			o.tell(i)
		}
	}
	if err := o.print(); err != nil {
		return err
	}
	r := refusal(err)
	return commands.Refuse(r.Code, "agents of these jobs that have not ended: %d; %s", len(left), r.Why).Hinting("see: %s agents", o.a.self())
}
