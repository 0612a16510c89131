package main

import (
	"time"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

func budgetFrom(g api.Budget) backlog.Budget {
	v := backlog.Budget{Name: g.Name, Scope: g.Scope, Target: g.Target, Dimension: g.Dimension, Hard: amountFrom(g.Hard), OnHard: g.OnHard, DowngradeTo: g.DowngradeTo,
		Rolling: secondsFrom(g.RollingSeconds), ResetsAt: g.ResetsAt, Every: secondsFrom(g.EverySeconds),
		Used: amountFrom(g.Used), Reserved: amountFrom(g.Reserved), Left: amountFrom(g.Left), SoftSince: g.SoftSince}
	if g.Soft != nil {
		v.Soft = new(amountFrom(*g.Soft))
	}
	return v
}

func secondsFrom(n int64) backlog.Seconds { return backlog.Seconds(time.Duration(n) * time.Second) }

func quotaFrom(q api.Quota) backlog.Quota {
	return backlog.Quota{Name: q.Name, Scope: q.Scope, Target: q.Target, Concurrent: q.Concurrent, PerWindow: q.PerWindow, Window: secondsFrom(q.WindowSeconds), Active: q.Active, InWindow: q.InWindow}
}

func laneFrom(l api.Lane) backlog.Lane {
	return backlog.Lane{Name: l.Name, State: l.State, Weight: l.Weight, Reason: l.Reason, Actor: l.Actor, Since: l.Since, Queued: l.Queued, Claimed: l.Claimed}
}

func freezeFrom(f api.Freeze) backlog.Freeze {
	return backlog.Freeze{Scope: f.Scope, Target: f.Target, Reason: f.Reason, Actor: f.Actor, Since: f.Since}
}
