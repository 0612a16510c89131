package main

import (
	"context"
	"slices"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store"
)

// checkSpokes notes the jobs whose spoke the hub does not have. A hub without spokes says so itself.
func (f *jobFile) checkSpokes(ctx context.Context, c *control.Client) error {
	if len(f.wrong) > 0 || !slices.ContainsFunc(f.jobs, func(j *job) bool { return j.req.Spoke != "" }) {
		return nil
	}
	list, err := listed(ctx, c)
	list = slices.DeleteFunc(list, func(v connectionView) bool { return v.Authority != store.Commands })
	if err != nil || len(list) == 0 {
		return err
	}
	faults := map[string]error{"": nil} // by spoke
	for _, v := range list {
		faults[v.Name] = nil
	}
	for _, j := range f.jobs {
		fault, known := faults[j.req.Spoke]
		if !known {
			if fault, err = noSpoke(ctx, c, j.req.Spoke); err != nil {
				return err
			}
			faults[j.req.Spoke] = fault
		}
		if fault != nil {
			f.wrong = append(f.wrong, j.placed(fault))
		}
	}
	return nil
}

// noSpoke says what is wrong with a text that is no name of a spoke, where it is not the beginning of an id either.
func noSpoke(ctx context.Context, c *control.Client, text string) (fault, err error) {
	v, err := connectionNamed(ctx, c, text)
	switch code := commands.CodeOf(err); {
	case code == commands.NotFound || code == commands.Ambiguous:
		return err, nil
	case err != nil:
		return nil, err
	case v.Authority != store.Commands:
		return misuse("%s is a hub that this instance obeys, not a spoke of it", v.Name), nil
	}
	return nil, nil
}

// placed is what is wrong with a job, with its place.
func (j *job) placed(err error) *commands.Refused {
	r := refusal(err)
	return &commands.Refused{Code: r.Code, Why: j.at + ": " + r.Why, Hint: r.Hint, Run: r.Run}
}
