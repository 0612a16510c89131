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

	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/instance"
	"github.com/spawnmesh/spawnmesh/store"
)

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
		if k.Behind && !k.AtOnce {
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
