package main

import (
	"context"
	"fmt"

	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// policyHere reads the policy, as it holds on this host where a spoke runs that has tried what
// does. inForce is the version in force there, "" where it is this one, or none runs.
func (a *app) policyHere(ctx context.Context) (p *policy.Policy, inForce string, err error) {
	if p, err = a.policy(); err != nil {
		return nil, "", err
	}
	c, err := a.client()
	if err != nil {
		return nil, "", err
	}
	v, err := askRunning(ctx, c)
	if err != nil || v.Held == nil {
		return p, "", nil // then what holds here is not known, and the answer says so
	}
	return p.On(v.Held), v.otherThan(p), nil
}

// otherThan is the id of the policy that the spoke obeys which runs; "" = it is p, or no spoke runs.
func (v running) otherThan(p *policy.Policy) string {
	if v.Held == nil || v.Policy == p.ID() {
		return ""
	}
	return v.Policy
}

// allowed says that the policy lets a program run, and whether there is one.
func allowed(program, missing string) string {
	if missing == "" {
		return "allowed"
	}
	return fmt.Sprintf("allowed, but %s cannot be started now: %s", program, missing)
}

// ofTheFile says that an answer is about the file, where another policy is in force.
func (a *app) ofTheFile(inForce string) []string {
	if inForce == "" {
		return nil
	}
	return []string{fmt.Sprintf("this is what policy.yaml says; the spoke that runs here obeys policy %s until: %s", inForce, a.line("spoke", "policy", "reload"))}
}
