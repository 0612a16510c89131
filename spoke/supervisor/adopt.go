package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
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
// is killed, and the attempt is lost.
//
// What decides whose processes end is in known, which is the caller's: what the
// directory says of it may be its agent's.
func Adopt(ctx context.Context, dir string, known Known) (*Agent, *Exit, error) {
	return adoptWithin(ctx, dir, known, startPatience)
}

func adoptWithin(ctx context.Context, dir string, known Known, patience time.Duration) (*Agent, *Exit, error) {
	known.Marker = cmp.Or(known.Marker, markerOf(dir))
	if !validMarker(known.Marker) {
		return nil, nil, fmt.Errorf("adopting %s: its marker %q is not 32 lower-case hexadecimal digits", dir, known.Marker)
	}
	// In a directory that its agent has closed the attempt ends all the same.
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrPermission) {
		return nil, nil, fmt.Errorf("adopting %s: %w", dir, err)
	}
	const pause = 10 * time.Millisecond
	for begin := time.Now(); ; {
		saved, err := readSpec(dir, known)
		if err != nil {
			return nil, nil, fmt.Errorf("adopting %s: %w", dir, err)
		}
		agent, exit, err := look(ctx, dir, saved)
		if err != nil {
			return nil, nil, fmt.Errorf("adopting %s: %w", dir, err)
		}
		if agent != nil || exit != nil {
			return agent, exit, nil
		}
		if time.Since(begin) > patience {
			evict(dir, saved)
			begin = time.Now()
		}
		select {
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("adopting %s: its lock is held, but nobody answers: %w", dir, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// look returns nothing at all when the shim is between two states: it does
// not listen yet, or does no longer and still has the lock.
func look(ctx context.Context, dir string, saved savedSpec) (*Agent, *Exit, error) {
	lock, err := takeLock(dir)
	damage := err
	if errors.Is(err, errSpoilt) {
		evict(dir, saved) // it has lost its lock, and its tree with it
	} else if err != nil {
		return nil, nil, err
	}
	if lock != nil || damage != nil {
		defer release(lock)
		exit, err := resolve(dir, saved, damage)
		if err != nil {
			return nil, nil, err
		}
		return nil, &exit, nil
	}
	w, shim, run, err := call(ctx, dir, saved.secret())
	switch {
	case err == nil:
		return newAgent(ctx, dir, saved, w, shim, false, run), nil, nil
	case errors.Is(err, errNotProven): // no shim; or its agent has taken its token out of the spec
		evict(dir, saved)
		return nil, nil, err
	}
	return nil, nil, nil
}

// evict ends whoever has the lock of an attempt and does not answer: a shim that
// hangs, or a process of the tree that got the lock when the shim was killed.
func evict(dir string, saved savedSpec) {
	if conn, err := dialShim(dir); err == nil {
		if pid, err := peerPid(conn); err == nil && pid != os.Getpid() && !shimOfAnother(pid, saved.Marker) {
			if shim, err := os.FindProcess(pid); err == nil {
				_ = shim.Kill()
				_ = shim.Release()
			}
		}
		_ = conn.Close()
	}
	_ = clearRemains(dir, saved, &Exit{}) // whatever it does not reach is found once the lock is free
}

// shimOfAnother reports whether a process is the shim of another attempt: an agent
// may have put that one's socket in the place of its own.
func shimOfAnother(pid int, marker string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	argv := strings.Split(string(b), "\x00")
	return err == nil && len(argv) > 3 && argv[1] == shimArg && argv[3] != marker
}

// conclude is resolve for a shim that is known to be dead, whoever has its lock:
// a process of its tree may have waited for it.
func conclude(dir string, saved savedSpec) (Exit, error) {
	lock, err := takeLock(dir)
	if lock == nil && err == nil {
		if err = clearRemains(dir, saved, &Exit{}); err == nil {
			lock, err = takeLock(dir)
		}
	}
	damage := err
	if err != nil && !errors.Is(err, errSpoilt) {
		return Exit{}, err
	}
	if lock == nil && damage == nil {
		return Exit{}, &Incomplete{} // or somebody adopts the attempt, and finds out the same
	}
	defer release(lock)
	return resolve(dir, saved, damage)
}

// resolve ends an attempt that has no shim and records how it ended. The
// caller holds the lock, so no shim lives, and after bury none will; or the lock
// is no file any more, as damage says, and nobody can have it. An error means that
// the end of the attempt is not proven.
func resolve(dir string, saved savedSpec, damage error) (Exit, error) {
	recorded, err := readExit(dir)
	if err != nil && !errors.Is(err, errSpoilt) {
		return Exit{}, err
	}
	damage = errors.Join(damage, err)
	whole := recorded != nil && len(recorded.Survivors) == 0
	if whole && damage == nil && !remains(dir, saved) {
		return *recorded, nil
	}
	if err := bury(dir); err != nil {
		return Exit{}, err
	}
	e := Exit{Outcome: NeverStarted, Code: -1, Reason: "no shim started the agent"}
	if _, err := os.Lstat(filepath.Join(dir, string(Stderr))); !errors.Is(err, fs.ErrNotExist) {
		e.Outcome, e.Reason = Lost, "the shim ended without a record"
	}
	if recorded != nil {
		e = *recorded
	}
	e.Damage = damage
	if e.Outcome != NeverStarted && !whole && !e.Stdout.Cut { // else done by an earlier adoption
		e.Stdout, e.Stderr = cutOutput(dir, Stdout), cutOutput(dir, Stderr)
	}
	err = clearRemains(dir, saved, &e)
	if e.EndedAt = time.Now().UTC(); err == nil || len(e.Survivors) > 0 {
		_ = writeExit(dir, e) // for a later process, which without it finds out the same
	}
	return e, err
}

// remains reports whether something of an attempt with a record may live: the
// record is the agent's if it has killed its shim.
func remains(dir string, saved savedSpec) bool {
	group := foundCgroup(dir, saved.Marker)
	left, err := newTree(saved.Marker, 0, group).survivors()
	return err != nil || len(left) > 0 || group.populated()
}

// clearRemains ends what a dead shim left behind. With an [*Incomplete] some of
// it is alive.
func clearRemains(dir string, saved savedSpec, e *Exit) error {
	earlier := e.Survivors // of an earlier look, which signalled them
	e.Survivors = nil
	boot, err := bootID()
	if err != nil {
		return err
	}
	if saved.bootID != "" && saved.bootID != boot {
		e.Reason += "; the host was restarted"
		return nil
	}
	group := foundCgroup(dir, saved.Marker)
	t := newTree(saved.Marker, 0, group)
	end := time.Now().Add(killPatience)
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		found, err := t.kill()
		if err != nil {
			return err
		}
		if len(found) == 0 && !group.populated() || time.Now().After(end) {
			break
		}
		time.Sleep(pause)
	}
	if e.Survivors, err = t.survivors(); err != nil {
		return err
	}
	for _, s := range earlier {
		if _, again := t.signalled[s.Pid]; !again {
			t.signalled[s.Pid] = process{pid: s.Pid, command: s.Command}
		}
	}
	reaped, total := t.reaped(e.Survivors)
	e.Reaped, e.ReapedTotal = append(e.Reaped, reaped...), e.ReapedTotal+total
	e.Reaped = e.Reaped[:min(len(e.Reaped), maxReaped)]
	if len(e.Survivors) > 0 || group.populated() {
		return &Incomplete{Survivors: e.Survivors}
	}
	_ = group.remove() // an empty group left behind does no harm
	return nil
}
