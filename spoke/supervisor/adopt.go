package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

// Adopt finds out what became of the attempt in dir after the process that
// started it ended, and returns either its agent, which has a live shim, or
// its exit. An attempt without a live shim and without an exit record is
// ended for good before Adopt returns: never_started when its agent cannot
// have run, lost otherwise, with what had to be ended in Reaped. While some of
// it does not end the attempt is not over, and Adopt returns an [*Incomplete]:
// call it again later.
//
// Adopt may be called at any time and any number of times, also while a shim
// is starting; ctx bounds the wait for it. A shim that does not answer for 30 s
// is killed, and the attempt is lost; so is one that another process answers for.
// Where this process cannot tell who answers, as without open files, that is an error
// and nothing is ended.
//
// What decides whose processes end is in known, which is the caller's: what the
// directory says of it may be its agent's.
func Adopt(ctx context.Context, dir string, known Known) (*Agent, *Exit, error) {
	return adoptWithin(ctx, dir, known, startPatience)
}

func adoptWithin(ctx context.Context, dir string, known Known, patience time.Duration) (*Agent, *Exit, error) {
	known.Marker = cmp.Or(known.Marker, markerOf(dir))
	if !attempt.ValidMarker(known.Marker) {
		return nil, nil, fmt.Errorf("adopting %s: its marker %q is not 32 lower-case hexadecimal digits", dir, known.Marker)
	}
	if err := makeDir(dir); err != nil {
		return nil, nil, fmt.Errorf("adopting %s: %w", dir, known.saved().endTree(err))
	}
	const pause = 10 * time.Millisecond
	for begin, tried := time.Now(), false; ; tried = true {
		saved, err := readSpec(dir, known)
		if err != nil {
			return nil, nil, fmt.Errorf("adopting %s: %w", dir, saved.endTree(err))
		}
		agent, exit, err := look(ctx, dir, saved, tried && time.Since(begin) > patience)
		if err != nil {
			return nil, nil, fmt.Errorf("adopting %s: %w", dir, err)
		}
		if agent != nil || exit != nil {
			return agent, exit, nil
		}
		select {
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("adopting %s: its lock is held, but nobody answers: %w", dir, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// makeDir makes the directory of an attempt that may have been claimed and no more, and those around it. An agent may have closed
// them, which is undone, or have put something else in their place: the attempt ends all the same. The error is another one.
func makeDir(dir string) error {
	err := os.MkdirAll(dir, 0o700)
	if errors.Is(err, fs.ErrPermission) {
		attempt.Reopen(dir)
		err = os.MkdirAll(dir, 0o700)
	}
	for _, spoilt := range []error{fs.ErrPermission, fs.ErrExist, syscall.ENOTDIR, syscall.ELOOP} {
		if errors.Is(err, spoilt) {
			return nil
		}
	}
	return err
}

// look returns nothing at all when the shim is between two states: it does
// not listen yet, or does no longer and still has the lock. With late it has been so
// for too long.
func look(ctx context.Context, dir string, saved savedSpec, late bool) (*Agent, *Exit, error) {
	lock, err := attempt.TakeLock(dir)
	if errors.Is(err, fs.ErrNotExist) { // a link to nowhere is in its place
		exit, err := endRemoved(saved)
		return nil, &exit, err
	}
	if err != nil && !errors.Is(err, attempt.ErrSpoilt) {
		return nil, nil, saved.endTree(err)
	}
	if lock == nil && err == nil && !late && !saved.shimGone() {
		w, shim, run, err := call(ctx, dir, saved)
		switch {
		case err == nil:
			return newAgent(ctx, dir, saved, w, shim, false, run), nil, nil
		case errors.Is(err, attempt.ErrNotProven), errors.Is(err, errStranger):
			// Its agent has taken its token out of the spec, or its socket away.
		case errors.Is(err, errUntold):
			return nil, nil, err
		default:
			return nil, nil, nil
		}
	}
	exit, err := conclude(ctx, dir, saved, lock, err)
	if err != nil {
		return nil, nil, err
	}
	return nil, &exit, nil
}

// conclude ends an attempt that has no shim, or whose shim is to end. The lock is that
// of the directory, if it was free; damage says that it is no file any more. Where
// neither is so some process has it: of the tree, which waited for it, or any other
// that the agent has started. None of them keeps the attempt from ending. Any other damage is a fault of this host: the
// end is not proven, but what lives is ended.
func conclude(ctx context.Context, dir string, saved savedSpec, lock *os.File, damage error) (Exit, error) {
	if lock == nil && !errors.Is(damage, attempt.ErrSpoilt) {
		if err := clearRemains(saved, &Exit{}); err != nil {
			return Exit{}, err
		}
		if lock, damage = attempt.TakeLock(dir); lock == nil && damage == nil {
			damage = errLockHeld
		}
	}
	defer attempt.Release(lock)
	if damage != nil && !errors.Is(damage, attempt.ErrSpoilt) {
		return Exit{}, unrecorded{damage}
	}
	return resolve(ctx, dir, saved, damage)
}

// resolve ends an attempt that has no shim and records how it ended. The
// caller holds the lock, so no shim lives, and after bury none will; or it is not
// the shim's any more, as damage says. What lives is ended before anything is read that
// its agent may have made long. An error means that the end of the attempt is not
// proven.
func resolve(ctx context.Context, dir string, saved savedSpec, damage error) (Exit, error) {
	recorded, err := readExit(dir)
	if err != nil && !errors.Is(err, attempt.ErrSpoilt) {
		return Exit{}, saved.clear(err)
	}
	recorded, odd := saved.seen.sift(recorded)
	damage = errors.Join(damage, err, odd)
	whole := recorded != nil && len(recorded.Survivors) == 0
	if whole && damage == nil && !remains(saved) {
		return *recorded, nil
	}
	unburied := attempt.Bury(dir) // nothing of the attempt lives for it, as where the disk is full
	e := Exit{Outcome: NeverStarted, Code: -1, Reason: "no shim started the agent"}
	if _, err := os.Lstat(filepath.Join(dir, string(Stderr))); saved.seen.began || saved.seen.broken || !errors.Is(err, fs.ErrNotExist) {
		e.Outcome, e.Reason = Lost, "the shim ended without a record"
	}
	if recorded != nil {
		e = *recorded
	}
	e.Damage = damage
	if err := clearRemains(saved, &e); err != nil {
		if len(e.Survivors) > 0 {
			e.EndedAt = time.Now().UTC()
			_ = attempt.WriteRecord(dir, e) // for a later process, which without it finds out the same
		}
		return e, err
	}
	if unburied != nil {
		return Exit{}, unrecorded{unburied}
	}
	if e.Outcome != NeverStarted && !whole && !e.Stdout.Cut { // else done by an earlier adoption
		most := saved.Longest()
		if e.Stdout, err = cutOutput(ctx, dir, Stdout, most); err == nil {
			e.Stderr, err = cutOutput(ctx, dir, Stderr, most)
		}
		if err != nil {
			return Exit{}, fmt.Errorf("completing the output: %w", err)
		}
	}
	e.EndedAt = time.Now().UTC()
	_ = attempt.WriteRecord(dir, e)
	return e, nil
}

// remains reports whether something of an attempt with a record may live: the
// record is the agent's if it has killed its shim.
func remains(saved savedSpec) bool {
	group, err := tree.FindGroup(saved.Marker, saved.shim.Cgroup)
	if err != nil {
		return true
	}
	left, err := saved.tree(group).Survivors()
	return err != nil || len(left) > 0 || group.Populated()
}

// End ends what is left of an attempt, and its shim. Of its directory nothing is read or changed. With an error some of it
// may live: call it again later. What has a user of its own is found by that: see [HasGroup].
func End(known Known) error { return clearRemains(known.saved(), &Exit{}) }

// Lives reports whether something of an attempt lives, its shim too, or may.
func Lives(known Known) bool {
	saved := known.saved()
	shims, err := saved.shims()
	return err != nil || len(shims) > 0 || remains(saved)
}

// endTree ends what is left of an attempt whose shim on record is known to be dead, where err keeps its end from being proven.
func (saved savedSpec) endTree(err error) error {
	if !saved.shimGone() {
		return err
	}
	return saved.clear(err)
}

// clear ends what is left of an attempt where err keeps its end from being proven.
func (saved savedSpec) clear(err error) error {
	return cmp.Or(clearRemains(saved, &Exit{}), error(unrecorded{err}))
}

// unrecorded is what of the files of an attempt keeps its end from being proven, although nothing of it lives.
type unrecorded struct{ error }

func (u unrecorded) Unwrap() error { return u.error }

// IsUnrecorded reports whether err says that only files of an attempt keep its end from being proven: nothing of it lives.
func IsUnrecorded(err error) bool {
	_, is := errors.AsType[unrecorded](err)
	return is
}

// clearRemains ends the shim, should it live, and what it left behind. With an [*Incomplete] some of
// it is alive.
func clearRemains(saved savedSpec, e *Exit) error {
	earlier := e.Survivors // of an earlier look, which signalled them
	e.Survivors = nil
	if saved.otherBoot() {
		e.Reason += "; the host was restarted"
		return nil
	}
	if err := saved.killShim(); err != nil {
		return err
	}
	group, err := tree.FindGroup(saved.Marker, saved.shim.Cgroup)
	if err != nil {
		return err
	}
	t := saved.tree(group)
	end := time.Now().Add(attempt.KillPatience)
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		found, err := t.Kill()
		if err != nil {
			return err
		}
		if len(found) == 0 && !group.Populated() || time.Now().After(end) {
			break
		}
		time.Sleep(pause)
	}
	if e.Survivors, err = t.Survivors(); err != nil {
		return err
	}
	t.Earlier(earlier)
	reaped, total := t.Reaped(e.Survivors)
	e.Reaped, e.ReapedTotal = append(e.Reaped, reaped...), e.ReapedTotal+total
	e.Reaped = e.Reaped[:min(len(e.Reaped), attempt.MaxReaped)]
	if len(e.Survivors) > 0 || group.Populated() {
		return &Incomplete{Survivors: e.Survivors, Former: saved.former}
	}
	_ = group.Remove() // an empty group left behind does no harm
	return nil
}
