package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/instance"
	"github.com/spawnmesh/spawnmesh/store"
)

func (a *app) retentionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "retention [KIND AGE]", Short: "Say how long old rows are kept, and see how large they are", Args: cobra.MatchAll(cobra.MaximumNArgs(2), evenArgs),
		Long: `Say how long rows of a kind are kept after their last use, or see it for all kinds.
AGE is a duration such as 12h or 90d, or "default". Old rows are removed every minute
by a running hub or spoke, and once an hour by claims from a backlog without one.`,
		Example: "  spawnmesh retention\n  spawnmesh retention tasks 7d\n  spawnmesh retention audit default",
		RunE: func(c *cobra.Command, args []string) error {
			return a.withInstance(c.Context(), func(ctx context.Context, in *instance.Instance) error {
				if len(args) == 2 {
					if err := setRetention(ctx, in.DB, args[0], args[1]); err != nil {
						return err
					}
				}
				list, err := in.DB.Retention(ctx)
				if err != nil {
					return err
				}
				if len(args) == 2 {
					list = slices.DeleteFunc(list, func(k store.Kept) bool { return k.Kind != args[0] })
				}
				return a.printRetention(list)
			})
		},
	}
}

// evenArgs takes a kind with its age, or nothing.
func evenArgs(_ *cobra.Command, args []string) error {
	if len(args) == 1 {
		return misuse("retention takes a kind and how long it is kept")
	}
	return nil
}

func setRetention(ctx context.Context, db *store.DB, kind, age string) error {
	var keep days
	if age != "default" {
		if err := keep.Set(age); err != nil || keep == 0 {
			return misuse("%q is not a time above 0, such as 12h or 30d, and not \"default\"", age)
		}
	}
	return db.SetRetention(ctx, kind, time.Duration(keep), actor())
}

func (a *app) printRetention(list []store.Kept) error {
	t := table{head: []string{"KIND", "KEPT", "AFTER", "SIZE", "GROWN", "PRUNED"}, wide: []string{"DEFAULT", "REMOVED"}}
	for _, k := range list {
		keep, usual, pruned := days(k.Keep), days(k.Default), "never"
		if k.PrunedAt != nil {
			pruned = k.PrunedAt.Local().Format(time.DateTime)
		}
		if k.Behind {
			pruned += " (behind)"
		}
		t.rows = append(t.rows, []string{k.Kind, keep.String(), k.Since, mebibytes(k.Bytes), mebibytes(k.Grown), pruned, usual.String(), fmt.Sprint(k.Removed)})
		t.names = append(t.names, k.Kind)
	}
	return printList(a, list, t)
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// checkDatabase says how large the kinds of rows are, and which of them pruning
// does not keep up with. An instance that has no database yet gets none.
func (a *app) checkDatabase(ctx context.Context, dir string) []control.Check {
	if _, err := os.Stat(filepath.Join(dir, "keys")); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	ctx, done := context.WithTimeout(ctx, time.Minute)
	defer done()
	var list []store.Kept
	var long *store.Snapshot
	err := a.withInstance(ctx, func(ctx context.Context, in *instance.Instance) (err error) {
		if list, err = in.DB.Retention(ctx); err == nil {
			long, err = in.DB.LongSnapshot(ctx)
		}
		return err
	})
	if err != nil {
		return []control.Check{control.NewCheck("database", err)}
	}
	checks := []control.Check{a.sizes(list)}
	if long != nil {
		checks = append(checks, control.Check{Name: "long transaction", Problem: fmt.Sprintf(
			"process %d of the database server (%s) reads a state that is %d transactions old, and each claim passes over what was claimed since; let it end, or end it: SELECT pg_terminate_backend(%[1]d)",
			long.Pid, cmp.Or(long.Program, "without a name"), long.Age)})
	}
	return checks
}

// sizes names the three largest kinds, and says what is wrong with any.
func (a *app) sizes(list []store.Kept) control.Check {
	var sum int64
	var behind, largest []string
	list = slices.SortedFunc(slices.Values(list), func(x, y store.Kept) int { return cmp.Compare(y.Bytes, x.Bytes) })
	for i, k := range list {
		sum += k.Bytes
		if k.Behind {
			behind = append(behind, k.Kind)
		}
		if i < 3 {
			largest = append(largest, fmt.Sprintf("%s %s (%+.1f since yesterday)", k.Kind, mebibytes(k.Bytes), float64(k.Grown)/(1<<20)))
		}
	}
	if len(behind) > 0 {
		return control.Check{Name: "database", Problem: fmt.Sprintf("pruning does not keep up with %s; keep it for less time, as in: %s",
			strings.Join(behind, ", "), a.line("retention", behind[0], "7d"))}
	}
	return note("database", mebibytes(sum)+": "+strings.Join(largest, ", "))
}
