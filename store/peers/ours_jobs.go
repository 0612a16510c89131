package main

import (
	"context"
	"fmt"

	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// done is the key of a task that is complete before the measurement begins.
const done = "done"

// capabilities are what jobs need, in turn.
var capabilities = [][]string{nil, {"linux"}, {"linux", "python"}, {"gpu", "linux"}}

// estimates are what jobs are to cost, in turn.
var estimates = []map[string]backlog.Amount{
	{"tokens": 1500 * backlog.Unit, "usd": backlog.Unit / 100},
	{"tokens": 20_000 * backlog.Unit, "usd": backlog.Unit / 10},
}

const account = "bench"

// spec is a job as a task. The title says which job it is.
func spec(j job) backlog.TaskSpec {
	s := backlog.TaskSpec{
		Title:        fmt.Sprintf("%d %d", j.Number, j.Millis),
		Account:      account,
		Capabilities: capabilities[j.Number%len(capabilities)],
		Estimate:     estimates[j.Number%len(estimates)],
	}
	if j.Low {
		s.Priority = -50
	}
	return s
}

func (o *ours) insert(ctx context.Context, j job) error {
	_, err := o.backlog.Create(ctx, spec(j))
	return err
}

func (o *ours) insertMany(ctx context.Context, jobs []job) error {
	batch := o.batches.Add(1)
	specs := make([]backlog.TaskSpec, len(jobs))
	for i, j := range jobs {
		specs[i] = spec(j)
		if i%10 != 9 {
			continue
		}
		if o.apart.Load() || j.Low {
			specs[i].DependsOn = []string{done}
			continue
		}
		specs[i-1].Key = fmt.Sprintf("batch %d job %d", batch, i-1)
		specs[i].DependsOn = []string{specs[i-1].Key}
	}
	_, err := o.backlog.Create(ctx, specs...)
	return err
}
