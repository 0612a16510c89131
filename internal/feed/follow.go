package feed

import (
	"context"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// Now stands for the last number that was given.
const Now int64 = -1

// A Gap is numbers of events that are no longer kept.
type Gap struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// A Reader is told events in their order. What it returns ends the following.
type Reader struct {
	Gap   func(Gap) error // instead of them
	Event func(Told) error
	Flush func() error // nothing more is there now; also called every Quiet
	Quiet time.Duration
}

// Follow tells r the events with numbers above at: those that are there and, with on, what
// comes until ctx ends. Nothing is told twice or left out, whatever happens meanwhile.
func (f *Feed) Follow(ctx context.Context, at int64, on bool, r Reader) error {
	defer f.join()()
	for {
		list, changed, err := f.above(ctx, at)
		if err != nil {
			return err
		}
		if at, err = tell(list, at, r); err != nil {
			return err
		}
		if len(list) > 0 {
			continue
		}
		if err := r.Flush(); err != nil || !on {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-time.After(r.Quiet):
		}
	}
}

// tell tells r of list, which follows the event with the number at, and returns the last number.
func tell(list []Told, at int64, r Reader) (int64, error) {
	for _, e := range list {
		if e.Seq > at+1 && e.Kind != store.RestoredEvent {
			if err := r.Gap(Gap{From: at + 1, To: e.Seq - 1}); err != nil {
				return at, err
			}
		}
		if err := r.Event(e); err != nil {
			return at, err
		}
		at = e.Seq
	}
	return at, nil
}

// Since returns after, for Follow, where it is a number that was given; for [Now] that of the
// last event that has happened by now.
func (f *Feed) Since(ctx context.Context, after int64) (int64, error) {
	for more := true; more; {
		var err error
		if more, err = f.look(ctx); err != nil {
			return 0, err
		}
	}
	last, err := f.db.LastEvent(ctx)
	switch {
	case err != nil:
		return 0, err
	case after == Now:
		return last, nil
	case after > last:
		return 0, commands.Refuse(commands.Validation, "following events after number %d: the last one of this instance is %d", after, last).
			Hinting("give a number that this instance has given, or none for what happens from now on")
	}
	return after, nil
}

// above returns events with numbers above at, in their order, from memory where that has all
// of them. Where there is none, changed says when to look again.
func (f *Feed) above(ctx context.Context, at int64) (list []Told, changed <-chan struct{}, err error) {
	f.mu.Lock()
	from, last, changed := f.from, f.last, f.changed
	if at >= from {
		i, _ := slices.BinarySearchFunc(f.recent, at+1, func(e Told, seq int64) int { return int(e.Seq - seq) })
		list = f.recent[i:]
	}
	f.mu.Unlock()
	if at >= from || at >= last {
		return list, changed, nil
	}
	list, err = f.read(ctx, at)
	return list, changed, err
}

// read returns a page of what is above at in the database.
func (f *Feed) read(ctx context.Context, at int64) ([]Told, error) {
	list, err := f.db.EventsAfter(ctx, at, page)
	told := make([]Told, len(list))
	for i, e := range list {
		told[i] = Told{e, f.encode(e)}
	}
	return told, err
}

// join counts one more who follows, until left is called.
func (f *Feed) join() (left func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.followers++; f.followers == 1 {
		f.joined.Send()
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.followers--
	}
}

// look numbers what is committed, and hands it on. So it does with what another look has
// numbered that was cut off.
func (f *Feed) look(ctx context.Context) (more bool, err error) {
	f.looking.Lock()
	defer f.looking.Unlock()
	n, last, err := f.db.NumberEvents(ctx, page)
	if err != nil {
		return false, err
	}
	for f.lags(last) {
		var list []Told
		if f.isFollowed() {
			if list, err = f.read(ctx, f.last); err != nil {
				return true, err
			}
		}
		if len(list) == 0 { // nobody follows, or they are no longer kept
			f.take(nil, last)
		} else {
			f.take(list, list[len(list)-1].Seq)
		}
	}
	return n == page, nil
}

// lags says whether numbers up to last were given of which those who follow have not been told.
func (f *Feed) lags(last int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last < last
}

// take keeps what was read, or where nothing was read, only how far the numbers go.
func (f *Feed) take(list []Told, last int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last = last; list == nil {
		f.recent, f.from = nil, last
	} else {
		f.recent = append(slices.Clip(f.recent), list...)
		if more := len(f.recent) - kept; more > 0 {
			f.from = f.recent[more-1].Seq
			f.recent = slices.Clone(f.recent[more:])
		}
	}
	close(f.changed)
	f.changed = make(chan struct{})
}
