// Package transfer fetches the blobs that the hubs of a spoke have for it, and brings them those that it has for them.
//
// What is wanted a [Source] says. Each hub has a connection for blobs of its own, which is opened when something is wanted
// of it and closed soon after: while nothing is wanted there is no connection and no timer. A transfer that broke off, by a
// cut line, the end of this process or that of the hub's, goes on behind what has come. The digest of the whole is what is trusted: what has come
// in pieces is a blob when its digest is the one that was asked for.
package transfer

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/internal/blob"
	"github.com/spawnmesh/spawnmesh/internal/streak"
	"github.com/spawnmesh/spawnmesh/internal/wait"
)

// A Blob is what is to travel over a connection: to this spoke, or with Put to its hub.
type Blob struct {
	Conn   string
	Digest blob.Digest
	Size   int64
	Put    bool
}

// A Source knows what is wanted.
type Source interface {
	// Wanted lists what is to be fetched and brought, the most urgent first. What has come over another connection is wanted of
	// this one all the same: a hub that only knows a digest would get its agents what another hub has sent.
	Wanted(ctx context.Context) ([]Blob, error)

	// Done is told when a blob is here, on the disk, or when its hub holds it. It is not wanted any more then. It may be told twice.
	Done(ctx context.Context, b Blob) error

	// Failed is told when a blob is given up, and then it is not wanted until something has changed. The error wraps a
	// [transport.BlobRefused], [blob.ErrDamaged], or fs.ErrNotExist where it is to be brought and is not here.
	Failed(ctx context.Context, b Blob, why error) error
}

// Transfers is the work of a spoke. Its fields are set before Run.
type Transfers struct {
	Blobs  *blob.Store
	Source Source
	Dial   func(ctx context.Context, conn string) (*transport.BlobConn, error) // a new connection for blobs
	Log    *slog.Logger

	// Room reports whether the disk has room for so many bytes more. What is fetched waits where it has not; nil = it has.
	Room func(size int64) bool

	Idle     time.Duration // how long a connection stays open that nothing needs; default 10 s
	Patience time.Duration // how long an answer of a hub may take; default 30 s
	Longest  time.Duration // between two tries; default 15 s

	news   wait.Signal
	work   sync.WaitGroup
	unread streak.Failures // of what is wanted

	once  sync.Once
	mu    sync.Mutex
	works map[key]context.CancelFunc // under way
	tries map[key]*tries             // of what is wanted, and was begun
	lines map[string]*line           // by connection
	begun map[string]time.Time       // when something of a connection was begun last
}

// What is carried at once, of all hubs and of one: a few MiB of memory.
const (
	mostOfAll = 4
	mostOfOne = 2
)

type key struct {
	conn   string
	digest blob.Digest
	put    bool
}

func (t *Transfers) prepare() {
	t.once.Do(func() {
		t.news, t.works, t.lines = wait.NewSignal(), map[key]context.CancelFunc{}, map[string]*line{}
		t.tries, t.begun = map[key]*tries{}, map[string]time.Time{}
	})
}

// Look has what is wanted looked at. It never blocks.
func (t *Transfers) Look() {
	t.prepare()
	t.news.Send()
}

// Run works until ctx ends, and then returns nil.
func (t *Transfers) Run(ctx context.Context) error {
	t.prepare()
	defer t.end()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for {
		again := t.look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-t.news:
		case <-again:
		}
	}
}

// end closes all connections, on which work may wait, and waits for it.
func (t *Transfers) end() {
	t.mu.Lock()
	for _, cancel := range t.works {
		cancel()
	}
	lines := slices.Collect(maps.Values(t.lines))
	clear(t.lines)
	t.mu.Unlock()
	for _, l := range lines {
		<-l.turn
		l.close()
		l.turn <- struct{}{}
	}
	t.work.Wait()
	for _, l := range lines {
		l.idle.Stop()
	}
}

// look begins what is wanted and ends what is not any more. It returns what tells that it is to be called again, nil where nothing but
// news does.
func (t *Transfers) look(ctx context.Context) (again <-chan time.Time) {
	list, err := t.Source.Wanted(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if t.unread.Note(err) && err != nil {
		t.Log.WarnContext(ctx, "reading which blobs are wanted; it is tried again", "err", err)
	}
	if err != nil {
		return time.After(wait.Spread(t.longest()))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.drop(list)
	ready, next := t.ready(list, time.Now())
	for len(ready) > 0 && len(t.works) < mostOfAll {
		i := t.turn(ready, of)
		if i < 0 {
			break
		}
		of[ready[i].Conn]++
		t.begin(ctx, ready[i])
		ready = slices.Delete(ready, i, i+1)
	}
	if !next.IsZero() {
		again = time.After(time.Until(next))
	}
	return again
}

// drop ends and forgets what is not in list. It returns how much of each connection is under way. The caller holds mu.
func (t *Transfers) drop(list []Blob) (of map[string]int) {
	wanted := map[key]bool{}
	of = map[string]int{}
	for _, b := range list {
		wanted[b.key()] = true
	}
	for k, cancel := range t.works {
		of[k.conn]++
		if !wanted[k] {
			cancel()
		}
	}
	maps.DeleteFunc(t.tries, func(k key, _ *tries) bool { return !wanted[k] && t.works[k] == nil })
	return of
}

// ready are those of list that are not under way and whose time has come, and next is when that of another one comes. The caller holds mu.
func (t *Transfers) ready(list []Blob, now time.Time) (ready []Blob, next time.Time) {
	var coming int64 // of what is being fetched: it may all be still to come
	for _, b := range list {
		if t.works[b.key()] != nil && !b.Put {
			coming += b.Size
		}
	}
	for _, b := range list {
		switch tried := t.tries[b.key()]; {
		case t.works[b.key()] != nil:
		case !b.Put && t.Room != nil && !t.Room(coming+b.Size):
			if later := now.Add(t.longest()); next.IsZero() || later.Before(next) {
				next = later
			}
		case tried == nil || !now.Before(tried.after):
			ready = append(ready, b)
			if !b.Put {
				coming += b.Size
			}
		case next.IsZero() || tried.after.Before(next):
			next = tried.after
		}
	}
	return ready, next
}

// turn is the place of what is begun next: of the connection that has waited longest the first. Negative = each has enough. The caller holds mu.
func (t *Transfers) turn(ready []Blob, of map[string]int) int {
	first := -1
	for i, b := range ready {
		if of[b.Conn] < mostOfOne && (first < 0 || t.begun[b.Conn].Before(t.begun[ready[first].Conn])) {
			first = i
		}
	}
	return first
}

// begin carries b. The caller holds mu.
func (t *Transfers) begin(ctx context.Context, b Blob) {
	ctx, cancel := context.WithCancel(ctx)
	t.works[b.key()], t.begun[b.Conn] = cancel, time.Now()
	tried := t.tries[b.key()]
	if tried == nil {
		tried = &tries{window: windowFirst}
		t.tries[b.key()] = tried
	}
	l := t.use(b.Conn)
	t.work.Go(func() {
		c := &carrier{Blob: b, t: t, line: l, tries: tried}
		over := c.run(ctx)
		cancel()
		t.mu.Lock()
		delete(t.works, b.key())
		if over {
			delete(t.tries, b.key())
		}
		t.leave(l)
		t.mu.Unlock()
		t.news.Send()
	})
}

func (b Blob) key() key { return key{b.Conn, b.Digest, b.Put} }
