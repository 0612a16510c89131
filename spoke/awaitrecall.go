package spoke

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// The end of an attempt of the time before a restore is recorded when the hub has said what it knows of it: before that nobody can say
// whether its agent had begun. Such an attempt has no process. So it takes no slot meanwhile, and a hub that never comes to the end of
// what it says keeps no slot from others: docs/decisions/0044.

// recalled waits, before the end of an attempt of the time before a restore is
// recorded, until the hub has said what it knows, or nobody needs that any more: somebody has killed it, or the fence does not hold. It
// reports whether to go on.
func (s *Spoke) recalled(ctx context.Context, r *run) bool {
	told, await := s.awaiting(ctx, r)
	defer s.live.awaitsNoMore(r)
	if !s.lookForLater(ctx, r, await) {
		return false
	}
	if pasts, err := s.backlog.Pasts(ctx, []string{r.fence.Task}); err == nil && !pasts[r.fence.Task].Asked {
		r.goesBy(pasts[r.fence.Task])
		return true
	}
	await()
	select {
	case <-ctx.Done():
		return false
	case <-r.leave:
		return false
	case <-r.lost:
	case past := <-told:
		r.goesBy(past)
	}
	return true
}

// awaiting is where an attempt is told what its hub recalls once await was called: from then on it takes no slot, until it awaits no more.
func (s *Spoke) awaiting(ctx context.Context, r *run) (told chan backlog.Past, await func()) {
	told = make(chan backlog.Past, 1)
	return told, sync.OnceFunc(func() {
		if s.live.await(r, told) {
			s.attempts.Go(func() { s.awaitRecall(ctx) })
		}
		s.work.Send()
	})
}

// lookForLater finds out whether a later attempt has begun: that is taken over when this one has ended, or by a word about its task. What
// cannot be told now is tried again, and await is called: it takes no slot meanwhile. Where somebody has ended its task no other follows: it is
// enough then that nothing of a later one lives. False = the attempt is left.
func (s *Spoke) lookForLater(ctx context.Context, r *run, await func()) bool {
	for {
		later, err := s.passed(r)
		if err == nil {
			r.later = later > 0
			s.backlog.NoteBegun(r.fence.Task, later)
			return true
		}
		lost := r.lost
		if r.isLost() {
			lives := s.noneLater(r)
			if lives == nil {
				return true
			}
			lost, err = nil, fmt.Errorf("%w; %w", lives, err)
		}
		s.Log.ErrorContext(ctx, "taking over an attempt; it will be tried again", "id", r.fence.Task, "err", err)
		await()
		select {
		case <-ctx.Done():
			return false
		case <-r.leave:
			return false
		case <-lost:
		case <-time.After(min(5*time.Second, s.left.patience())):
		}
	}
}

// goesBy takes what the hub knows to have begun for what has.
func (r *run) goesBy(past backlog.Past) {
	r.begun = r.begun || r.fence.Attempt <= past.Begun
	r.later = r.later || r.fence.Attempt < past.Begun
}

// awaitRecall looks for what hubs recall, for all attempts that wait for it, until none does.
func (s *Spoke) awaitRecall(ctx context.Context) {
	s.live.look(ctx, func(tasks []string) (map[string]backlog.Past, error) {
		pasts, err := s.backlog.Pasts(ctx, tasks)
		if err != nil && ctx.Err() == nil {
			s.Log.ErrorContext(ctx, "looking for what the hub recalls; it is tried again", "err", err)
		}
		return pasts, err
	})
}

// How often the database is asked: a hub that is away for days is not looked for five times a second. What changes something wakes who
// looks; what another process changes is found by itself.
const firstLook, lastLook = 200 * time.Millisecond, 2 * time.Second

// look asks pasts for all that wait, and tells each what it waits for, until none does.
func (l *live) look(ctx context.Context, pasts func(tasks []string) (map[string]backlog.Past, error)) {
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		waiting := l.awaiting()
		if len(waiting) == 0 {
			return
		}
		var tasks []string
		for r := range waiting {
			tasks = append(tasks, r.fence.Task)
		}
		found, err := pasts(tasks)
		for r, told := range waiting {
			if past := found[r.fence.Task]; err == nil && !past.Asked {
				select {
				case told <- past:
				default: // it has not read the one before yet
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-l.recalls:
			pause = firstLook / 2
		case <-time.After(pause):
		}
	}
}

// await notes that an attempt without a process waits for what is told of its past. It reports whether nobody looks for that yet.
func (l *live) await(r *run, told chan backlog.Past) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[r] = told
	l.recalls.Send()
	first, l.looking = !l.looking, true
	return first
}

// awaitsNoMore takes back what await has noted.
func (l *live) awaitsNoMore(r *run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, r)
	l.recalls.Send()
}

// awaiting are those that wait so. Where none does, nobody looks any more.
func (l *live) awaiting() map[*run]chan backlog.Past {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looking = len(l.waiting) > 0
	return maps.Clone(l.waiting)
}

// onlyAwaits reports whether all that is here waits so, if anything is.
func (l *live) onlyAwaits() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all) > 0 && len(l.all) == len(l.waiting)
}

// awaits reports whether the attempt of a task waits so.
func (l *live) awaits(task string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.byTask[task]
	return r != nil && l.waiting[r] != nil
}
