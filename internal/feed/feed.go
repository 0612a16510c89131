// Package feed numbers what changes in an instance, and tells it to whoever follows.
//
// The database is the record. What changed is written with the change; this process
// gives it a number when it is committed, reads it once, and hands it to all who follow.
// Who is behind what is kept in memory reads it in the database, at his own pace.
package feed

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/store"
)

const (
	// page is how many events are numbered, or read, at a time.
	page = 1000
	// kept is how many events stay in memory while somebody follows.
	kept = 4 * page
	// followed is the least time between two looks while somebody follows.
	followed = 20 * time.Millisecond
	// perFollower is that for each of them: a look that finds something costs each a write.
	perFollower = 100 * time.Microsecond
	// unfollowed is that while nobody does: many are numbered at once then, which is cheaper.
	unfollowed = 5 * time.Second
	// again is how long a look that failed is waited after.
	again = time.Second
)

// A Feed is that of one instance that runs.
type Feed struct {
	encode func(store.Event) []byte
	db     *store.DB
	log    *slog.Logger
	news   wait.Signal // something may have been committed
	joined wait.Signal // somebody follows, and nobody did before

	looking   sync.Mutex // held while last grows
	mu        sync.Mutex // guards the rest
	followers int
	recent    []Told // all of those with numbers above from, up to last; both are above all before Run
	from      int64
	last      int64
	changed   chan struct{} // closed when last grows
}

// A Told is an event as it is told: it is encoded once for all who follow.
type Told struct {
	store.Event
	Text []byte
}

// New returns the feed of an instance, which tells events as encode has them. Run makes it work.
func New(db *store.DB, log *slog.Logger, encode func(store.Event) []byte) *Feed {
	return &Feed{encode: encode, db: db, log: log, news: wait.NewSignal(), joined: wait.NewSignal(), from: math.MaxInt64, last: math.MaxInt64, changed: make(chan struct{})}
}

// Changed says that something may have been committed. It does not block.
func (f *Feed) Changed(store.Wrote) { f.news.Send() }

// Run numbers events, and hands them on, until ctx ends.
func (f *Feed) Run(ctx context.Context) error {
	if err := f.begin(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	for ctx.Err() == nil {
		looked := time.Now()
		more, err := f.look(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			f.log.ErrorContext(ctx, "numbering events", "err", err)
			_ = wait.For(ctx, again)
		case !more:
			f.rest(ctx, looked)
		}
	}
	return nil
}

// begin notes the start, and from where on events are new. A start is noted also where the instance is to end already:
// it may have changed something.
func (f *Feed) begin(ctx context.Context) error {
	noting, done := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer done()
	if err := f.db.NoteEvent(noting, store.StartedEvent, "", ""); err != nil {
		return err
	}
	f.looking.Lock()
	defer f.looking.Unlock()
	last, err := f.db.LastEvent(ctx)
	if err == nil {
		f.take(nil, last)
	}
	return err
}

// rest waits until something has changed and, where nobody follows, for longer.
func (f *Feed) rest(ctx context.Context, looked time.Time) {
	select {
	case <-ctx.Done():
		return
	case <-f.news:
	}
	select {
	case <-ctx.Done():
	case <-f.joined:
	case <-time.After(time.Until(looked.Add(f.pause()))):
	}
}

// pause is the least time between two looks.
func (f *Feed) pause() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.followers == 0 {
		return unfollowed
	}
	return max(followed, time.Duration(f.followers)*perFollower)
}

func (f *Feed) isFollowed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.followers > 0
}
