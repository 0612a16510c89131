package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store"
)

func (a *app) retentionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "retention [KIND AGE]", Short: "Say how long old rows are kept, and see how large they are", Args: cobra.MatchAll(cobra.MaximumNArgs(2), evenArgs),
		Long: `Say how long rows of a kind are kept after their last use, or see it for all kinds.
AGE is a duration such as 12h or 90d, or "default". Old rows are removed every minute
by a running hub or spoke, and once an hour by claims from a backlog without one.
What is shown with "at once" is not kept, and takes no AGE. Of logs, the agents'
output that a hub has in files, hub run says how much is kept.`,
		Example: "  spawnmesh retention\n  spawnmesh retention tasks 7d\n  spawnmesh retention audit default",
		RunE: func(c *cobra.Command, args []string) error {
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				list, err := a.keep(ctx, c.API(), args)
				if err != nil {
					return err
				}
				return a.printRetention(slices.DeleteFunc(list, noHub))
			})
		},
	}
}

// noHub reports whether k is the output that hubs keep, where no hub has run.
func noHub(k store.Kept) bool { return k.SetBy != "" && k.Bounds == "" && k.Bytes == 0 }

// evenArgs takes a kind with its age, or nothing.
func evenArgs(_ *cobra.Command, args []string) error {
	if len(args) == 1 {
		return misuse("retention takes a kind and how long it is kept")
	}
	return nil
}

// keep sets how long a kind is kept, and returns it, or returns all kinds.
func (a *app) keep(ctx context.Context, c *api.ClientWithResponses, args []string) ([]store.Kept, error) {
	if len(args) == 0 {
		list, err := control.Answer(c.ListRetentionWithResponse(ctx))
		return each(list.Items, keptFrom), err
	}
	var age days
	if args[1] != "default" {
		if err := age.Set(args[1]); err != nil || age == 0 {
			return nil, misuse("%q is not a time above 0, such as 12h or 30d, and not \"default\"", args[1])
		}
	}
	k, err := control.Answer(c.ChangeRetentionWithResponse(ctx, args[0], api.RetentionChange{KeepNS: int64(age)}))
	if err == nil {
		a.did("%s are kept for %s; see: %s", k.Kind, commands.Lasting(time.Duration(k.KeepNS)), a.line("retention"))
	}
	return []store.Kept{keptFrom(k)}, err
}

func keptFrom(k api.Retention) store.Kept {
	return store.Kept{Kind: k.Kind, Since: k.AgeSince, Keep: time.Duration(k.KeepNS), Default: time.Duration(k.DefaultNS), AtOnce: k.AtOnce, SetBy: k.SetBy, PartOf: k.PartOf, Bounds: k.Bounds,
		Bytes: k.Bytes, Grown: k.GrownBytes, BytesAt: k.GrownSince, PrunedAt: k.PrunedAt, Removed: k.Removed, Behind: k.Behind}
}

func (a *app) printRetention(list []store.Kept) error {
	t := table{head: []string{"KIND", "KEPT", "AFTER", "SIZE", "GROWN", "PRUNED"}, wide: []string{"DEFAULT", "REMOVED"}, drops: []string{"PRUNED", "GROWN"}, yields: "AFTER", least: 20}
	for _, k := range list {
		keep, usual, pruned := commands.Lasting(k.Keep), commands.Lasting(k.Default), "never"
		if k.AtOnce {
			keep, usual = "at once", "at once"
		}
		if k.PrunedAt != nil {
			pruned = k.PrunedAt.Local().Format(time.DateTime)
		}
		if k.SetBy != "" {
			pruned = "-"
		}
		if k.Behind {
			pruned += " (behind)"
		}
		t.rows = append(t.rows, []string{k.Kind, keep, k.Since, mebibytes(k.Bytes), mebibytes(k.Grown), pruned, usual, fmt.Sprint(k.Removed)})
		t.names = append(t.names, k.Kind)
	}
	if err := printList(a, list, t); err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(k store.Kept) bool { return k.SetBy != "" })
	if i < 0 || !a.forPeople() {
		return nil
	}
	bounds := list[i].Bounds
	if bounds != "" {
		bounds += "; "
	}
	_, err := fmt.Fprintf(a.out, "\n%s: %sset by %s\n", list[i].Kind, bounds, list[i].SetBy)
	return err
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
