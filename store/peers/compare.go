package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/internal/bench/record"
)

// A result is everything that a run found.
type result struct {
	record.Origin
	Jobs     int               `json:"jobs"`
	Settings string            `json:"settings"`
	Server   map[string]string `json:"server"`
	About    map[string]about  `json:"contenders"`
	Rounds   []round           `json:"rounds"`
	Medians  map[string]values `json:"medians"`
	Verdicts []verdict         `json:"verdicts"`
}

// A round is what each contender did once.
type round map[string]values

// compare runs the whole measurement and prints it.
func compare(ctx context.Context, o options) (err error) {
	if slices.Contains(o.names, "graphile") {
		if err := install(ctx); err != nil {
			return err
		}
	}
	s, err := startServer(ctx, o.settings)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()

	r := result{Origin: record.Here(), Jobs: o.jobs, Settings: o.settings, About: map[string]about{}}
	if r.Server, err = s.settings(ctx); err != nil {
		return err
	}
	for i := range o.rounds {
		found := round{}
		for _, name := range o.names {
			began := time.Now()
			if found[name], err = contest(ctx, s, o, name, r.About); err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "round %d of %d, %s: %s\n", i+1, o.rounds, name, time.Since(began).Round(time.Second))
		}
		r.Rounds = append(r.Rounds, found)
	}
	r.Medians = medians(r.Rounds)
	r.Verdicts = judge(r.Rounds)
	show(os.Stdout, o.names, r)
	return record.Write(o.json, r)
}

// contest runs all phases of one contender, in a fresh database and process.
func contest(ctx context.Context, s *server, o options, name string, abouts map[string]about) (found values, err error) {
	if err := s.fresh(ctx, name); err != nil {
		return nil, err
	}
	address, err := s.url(name)
	if err != nil {
		return nil, err
	}
	p, err := start(ctx, name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.end()) }()
	opened, err := p.ask(request{Phase: phaseOpen, URL: address})
	if err != nil {
		return nil, err
	}
	if opened.About == nil {
		return nil, fmt.Errorf("%s did not say what it is", name)
	}
	abouts[name] = *opened.About

	found = values{}
	for _, step := range steps(o, opened.About.Phases) {
		if err := s.settle(ctx, name); err != nil {
			return nil, err
		}
		if err := p.run(step, s, found); err != nil {
			return nil, err
		}
	}
	return found, s.settle(ctx, name)
}

// run has the contender do one step and adds what was measured to found.
func (p *process) run(step request, s *server, found values) error {
	most := func() memory { return memory{} }
	if step.Phase == phaseWorked { // elsewhere the samples would only disturb
		most = watch(p.cmd.Process.Pid, s.cluster.Pid())
	}
	answer, err := p.ask(step)
	used := most()
	if err != nil {
		return err
	}
	maps.Copy(found, answer.Values)
	if used != (memory{}) {
		found["client-rss"], found["server-pss"] = used.Client, used.Server
	}
	return nil
}

// steps returns what to ask of a contender that knows the given phases.
func steps(o options, phases []string) []request {
	tenth, fifth := o.jobs/10, o.jobs/5
	list := []request{
		{Phase: phaseInsertOne, Jobs: tenth},
		{Phase: phaseInsertMany, Jobs: o.jobs - tenth},
		{Phase: phaseWorked, Jobs: o.jobs},
		{Phase: phasePickup},
	}
	if slices.Contains(phases, phaseRefill) {
		list = append(list,
			request{Phase: phaseRefill, Jobs: fifth}, request{Phase: phaseClaim1, Jobs: fifth},
			request{Phase: phaseRefill, Jobs: o.jobs}, request{Phase: phaseClaim100, Jobs: o.jobs},
			request{Phase: phaseRefill, Jobs: o.jobs}, request{Phase: phaseClaim500, Jobs: o.jobs},
			request{Phase: phaseRefill, Jobs: 0})
	}
	if o.big && slices.Contains(phases, phasePickupBig) {
		list = append(list, request{Phase: phaseBacklog, Jobs: backlogJobs}, request{Phase: phasePickupBig})
	}
	return list
}
