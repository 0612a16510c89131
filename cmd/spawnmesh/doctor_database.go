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
	var super string
	var audit control.Check
	var due schedulesFound
	var webhooks []store.Webhook
	var tokens []store.TokenView
	err := a.withInstance(ctx, func(ctx context.Context, in *instance.Instance) (err error) {
		if list, err = in.DB.Retention(ctx); err == nil {
			long, err = in.DB.LongSnapshot(ctx)
		}
		if err == nil {
			super, err = in.DB.Superuser(ctx)
		}
		if err == nil {
			audit = checkAudit(ctx, in)
			due, err = findSchedules(ctx, in)
		}
		if err == nil {
			webhooks, err = in.DB.Webhooks(ctx)
		}
		if err == nil {
			tokens, err = in.DB.Tokens(ctx)
		}
		return err
	})
	if err != nil {
		return []control.Check{control.NewCheck("database", err)}
	}
	checks := append(a.sizes(list), audit)
	if n := howMany(webhooks, store.Webhook.Restored); n > 0 {
		checks = append(checks, note("webhooks", fmt.Sprintf("%d of %d are told nothing since the database was restored from a backup; to let them go on: %s", n, len(webhooks), a.line("webhook", "enable", "--all"))))
	}
	if n := howMany(tokens, func(t store.TokenView) bool { return t.State == store.TokenRestored }); n > 0 {
		checks = append(checks, note("tokens", fmt.Sprintf("%d of %d let nobody in since the database was restored from a backup; revoke those that were revoked since, then: %s", n, len(tokens), a.line("token", "confirm", "--all"))))
	}
	if n := howMany(due.schedules, func(s store.Schedule) bool { return s.Restored }); n > 0 {
		checks = append(checks, note("schedules", fmt.Sprintf("%d of %d order nothing since the database was restored from a backup; to let them go on: %s", n, len(due.schedules), a.line("schedule", "resume", "--all"))))
	}
	checks = append(checks, a.checkSchedules(due)...)
	if long != nil {
		checks = append(checks, control.Check{Name: "long transaction", Problem: fmt.Sprintf(
			"process %d of the database server (%s) reads a state that is %d transactions old, and each claim passes over what was claimed since; let it end, or end it: SELECT pg_terminate_backend(%[1]d)",
			long.Pid, cmp.Or(long.Program, "without a name"), long.Age)})
	}
	if super != "" {
		checks = append(checks, note("database user", fmt.Sprintf(
			"%s is a superuser, which is not needed: who can log in as it, as an agent that reads its password, has all of that server; "+
				"give the database to another role and name that in DATABASE_URL: see docs/operating.md, A database of your own", super)))
	}
	return checks
}

// howMany of list is says yes to.
func howMany[T any](list []T, is func(T) bool) (n int) {
	for _, v := range list {
		if is(v) {
			n++
		}
	}
	return n
}

// How many of the newest rows of the audit doctor holds against its checkpoint, and how long that may take.
const (
	auditTail     = 10_000
	auditTailTime = 5 * time.Second
)

func checkAudit(ctx context.Context, in *instance.Instance) control.Check {
	ctx, done := context.WithTimeout(ctx, auditTailTime)
	defer done()
	v, err := in.DB.CheckAuditTail(ctx, in.Keys.Identity, auditTail)
	switch {
	case ctx.Err() != nil:
		return note("audit", fmt.Sprintf("not looked at: the database took longer than %s", auditTailTime))
	case err != nil:
		return control.NewCheck("audit", err)
	case v.Of == 0:
		return note("audit", "no checkpoint was signed yet")
	}
	return note("audit", fmt.Sprintf("the newest %s of %d that its checkpoint of %s covers are as they were", amount(v.Leaves, "row"), v.Of, clock(&v.At)))
}

// sizes names the three largest kinds of rows and the one that grew most, says what
// is wrong with any, and how much there is in files.
func (a *app) sizes(list []store.Kept) []control.Check {
	var checks []control.Check
	list = slices.Clone(list)
	if i := slices.IndexFunc(list, func(k store.Kept) bool { return k.SetBy != "" }); i >= 0 {
		if k := list[i]; !noHub(k) {
			checks = append(checks, note(k.Kind, cmp.Or(k.Bounds, "set by "+k.SetBy)+": "+sized(k)))
		}
		list = slices.Delete(list, i, i+1)
	}
	list = slices.DeleteFunc(list, func(k store.Kept) bool { return k.PartOf != "" && !k.Behind })
	var sum int64
	var behind []string
	for _, k := range list {
		if k.PartOf == "" {
			sum += k.Bytes
		}
		if k.Behind && !k.AtOnce {
			behind = append(behind, k.Kind)
		}
	}
	if len(behind) > 0 {
		return append(checks, control.Check{Name: "database", Problem: fmt.Sprintf("pruning does not keep up with %s; keep it for less time, as in: %s",
			strings.Join(behind, ", "), a.line("retention", behind[0], "7d"))})
	}
	return append(checks, note("database", mebibytes(sum)+": "+strings.Join(telling(list), ", ")))
}

// telling describes the three largest kinds, and the one that grew most where it is
// another.
func telling(list []store.Kept) (out []string) {
	list = slices.SortedFunc(slices.Values(list), func(x, y store.Kept) int { return cmp.Compare(y.Bytes, x.Bytes) })
	most := slices.MaxFunc(list, func(x, y store.Kept) int { return cmp.Compare(x.Grown, y.Grown) })
	for i, k := range list {
		if i < 3 || k.Kind == most.Kind && k.Grown > 0 {
			out = append(out, sized(k))
		}
	}
	return out
}

func sized(k store.Kept) string {
	return fmt.Sprintf("%s %s (%+.1f since yesterday)", k.Kind, mebibytes(k.Bytes), float64(k.Grown)/(1<<20))
}
