package main

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

// spokeAlone reports whether an instance is a spoke and no hub.
func spokeAlone(ctx context.Context, c *control.Client) (bool, error) {
	v, err := askRunning(ctx, c)
	return v.Role == "spoke", err
}

// killHosted ends all agents of a host by its own word, whichever hub ordered them.
func (a *app) killHosted(ctx context.Context, c *control.Client, f killFlags, reason string, grace time.Duration) error {
	k := killable{where: map[string]int{}}
	list, _, err := agentFlags{open: true, limit: math.MaxInt}.list(ctx, c)
	if err != nil {
		return err
	}
	for _, v := range list {
		if v.Kill != nil && !onlyCancelled(v.Kill) {
			k.ordered++
			continue
		}
		k.add("this host by order of "+v.Hub, v.Task)
	}
	return a.killMeant(ctx, f, k, func(sum *hub.KillSummary) error { return killEach(ctx, c, k.ids, reason, grace, sum) })
}

// killEach orders the end of each agent: what is wrong with one does not spare the others.
func killEach(ctx context.Context, c *control.Client, ids []string, reason string, grace time.Duration, sum *hub.KillSummary) error {
	for _, id := range ids {
		m, err := orderKill(ctx, c, id, reason, grace)
		switch {
		case ctx.Err() != nil:
			return err
		case err != nil:
			sum.Refused = append(sum.Refused, refusedKill(id, err))
		case endedBefore(m) != nil:
			sum.EndedAlready++
		default:
			sum.Killed++
		}
	}
	return nil
}

func refusedKill(id string, err error) hub.KillRefused {
	why := err.Error()
	if r, ok := errors.AsType[*commands.Refused](err); ok {
		why = r.Why
	}
	return hub.KillRefused{ID: id, Code: commands.CodeOf(err), Detail: why}
}
