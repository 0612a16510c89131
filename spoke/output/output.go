// Package output sends what agents write to the hubs that asked for them.
//
// The files of an attempt are the record. A cursor per stream, in the database,
// says how much the hub has on disk; it moves with the hub's word only. Pieces go
// straight from the files over the link, at most a window of them unconfirmed per
// connection, agents in turns. What was under way when a link, a process or a
// message server went is sent again from the cursor. On a new link one piece goes
// first, and the hub's answer says where to go on: further on, or back.
package output

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/spoke/hostfault"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

const (
	window = 1 << 20  // bytes of a connection under way, unconfirmed
	piece  = 64 << 10 // bytes of output in one message
	cost   = 1 << 10  // what a message takes of the window besides
	period = 200 * time.Millisecond
	// patience is how long a confirmation is waited for before the piece goes again.
	patience = 10 * time.Second
)

// A Sender sends output. Its exported fields are set before any method is called.
type Sender struct {
	Backlog *backlog.Backlog
	Board   *federation.Board
	Dir     func(backlog.Fence) string // of an attempt
	// Others reports whether the attempt in that directory is another connection's; the error is a fault of this host. nil = none is.
	Others func(conn string, f backlog.Fence) (bool, error)
	// Cap is how much a policy lets agents write to a stream, see [supervisor.Spec].
	Cap func() int64
	// Live lists attempts that run here and that a hub asked for, and Lives reports whether one does, or may.
	Live  func() []backlog.Fence
	Lives func(backlog.Fence) bool
	// Mends is how long a disk has to mend.
	Mends func() time.Duration
	Log   *slog.Logger

	keep *store.Group[backlog.Fence, []backlog.Output]
	news wait.Signal // sent when Live lists more

	mu      sync.Mutex // guards the rest
	loaded  bool
	feeds   map[string]*feed   // by connection
	outputs map[outputKey]bool // in feeds
	serve   func(*feed)
}

type outputKey struct {
	task   string
	number int
}

// New returns a sender of what b remembers.
func New(b *backlog.Backlog) *Sender {
	s := &Sender{Backlog: b, feeds: map[string]*feed{}, outputs: map[outputKey]bool{}, news: wait.NewSignal()}
	s.keep = store.NewGroup(func(ctx context.Context, fences []backlog.Fence) ([][]backlog.Output, error) {
		list, err := s.Backlog.KeepOutput(ctx, fences)
		if err == nil {
			s.add(list)
		}
		return make([][]backlog.Output, len(fences)), err
	})
	return s
}

// Run sends until ctx ends.
func (s *Sender) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	s.mu.Lock()
	s.serve = func(l *feed) { g.Go(func() error { return l.run(ctx) }) }
	s.mu.Unlock()
	g.Go(func() error { return s.keep.Run(ctx) })
	g.Go(func() error { return s.follow(ctx) })
	return g.Wait()
}

// Begun tells that there are more live attempts.
func (s *Sender) Begun() { s.news.Send() }

// follow takes up what an earlier process left unsent, and then what live attempts
// begin to write: one that begins now has written nothing yet.
func (s *Sender) follow(ctx context.Context) error {
	for {
		silent, err := s.look(ctx)
		if err != nil && ctx.Err() == nil {
			s.Log.WarnContext(ctx, "looking for output to be sent; it is tried again", "err", err)
		}
		if !silent && err == nil {
			select {
			case <-ctx.Done():
				return nil
			case <-s.news:
			}
		}
		if wait.For(ctx, period) != nil {
			return nil
		}
	}
}

// look reports whether there are live attempts that it has to look at again: they have not
// written anything yet.
func (s *Sender) look(ctx context.Context) (silent bool, err error) {
	s.mu.Lock()
	loaded := s.loaded
	s.mu.Unlock()
	if !loaded {
		list, err := s.Backlog.UnsentOutput(ctx)
		if err != nil {
			return false, err
		}
		s.add(list)
		s.mu.Lock()
		s.loaded = true
		s.mu.Unlock()
	}
	var fresh []backlog.Fence
	for _, f := range s.Live() {
		if s.knows(f) {
			continue
		}
		if s.wrote(f) {
			fresh = append(fresh, f)
		} else {
			silent = true
		}
	}
	if len(fresh) == 0 {
		return silent, nil
	}
	list, err := s.Backlog.KeepOutput(ctx, fresh)
	if err == nil {
		s.add(list)
	}
	return silent || slices.ContainsFunc(fresh, func(f backlog.Fence) bool { return !s.knows(f) }), err
}

// Keep sees to it that what an attempt has written is sent, also after a crash.
// It is called before the end of the attempt is recorded.
func (s *Sender) Keep(ctx context.Context, f backlog.Fence) error {
	if s.knows(f) {
		return nil
	}
	if !s.wrote(f) {
		return nil
	}
	_, err := s.keep.Submit(ctx, f)
	return err
}

// Unsent returns the tasks with output that is not sent yet; ok is false while that
// is not known.
func (s *Sender) Unsent() (tasks map[string]bool, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tasks = map[string]bool{}
	for a := range s.outputs {
		tasks[a.task] = true
	}
	return tasks, s.loaded
}

// Forget drops what is for a connection that has ended.
func (s *Sender) Forget(ctx context.Context, conn string) error {
	s.mu.Lock()
	if l := s.feeds[conn]; l != nil {
		for _, a := range l.clear() {
			delete(s.outputs, a)
		}
	}
	s.mu.Unlock()
	return s.Backlog.DropOutput(ctx)
}

// wrote reports whether there is anything to send of an attempt. It is asked of every live
// one again and again. What a fault of this host keeps from being told may be something: who sends it waits for it, and nobody else.
func (s *Sender) wrote(f backlog.Fence) bool {
	for _, name := range commands.Streams {
		if supervisor.Empty(s.Dir(f), supervisor.Stream(name)) {
			continue
		}
		p, err := supervisor.Read(s.Dir(f), supervisor.Stream(name), 0, 1, s.Cap())
		if hostfault.Is(err) || err == nil && len(p.Data) > 0 {
			return true
		}
	}
	return false
}

func (s *Sender) knows(f backlog.Fence) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outputs[outputKey{f.Task, f.Attempt}]
}

// add takes up output that is not known yet.
func (s *Sender) add(list []backlog.Output) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range list {
		key := outputKey{o.Fence.Task, o.Fence.Attempt}
		if s.outputs[key] {
			continue
		}
		s.outputs[key] = true
		l := s.feeds[o.Conn]
		if l == nil {
			l = newFeed(s, o.Conn)
			s.feeds[o.Conn] = l
			s.serve(l)
		}
		l.add(o)
	}
}

// again takes up output that was sent and that a hub does not have any more: it was
// restored. The answer to the first piece says where to go on. Output that is not
// known here any more is said to be lost, in answer to asked.
func (s *Sender) again(ctx context.Context, conn string, asked *signing.Ref, list []commands.StoredStream) error {
	var lost []backlog.Fence
	for _, st := range list {
		if f := (backlog.Fence{Task: st.Task, Attempt: st.Attempt}); !st.Ended && st.Code == "" && !s.knows(f) {
			lost = append(lost, f)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	found, err := s.Backlog.KeepOutput(ctx, lost)
	if err != nil {
		return err
	}
	s.add(found)
	var notes []federation.Note
	for _, st := range list {
		if f := (backlog.Fence{Task: st.Task, Attempt: st.Attempt}); slices.Contains(lost, f) && !s.knows(f) {
			notes = append(notes, federation.Note{Re: asked, Body: &commands.Log{Task: st.Task, Attempt: st.Attempt, Stream: st.Stream, Offset: st.Through, End: &commands.LogEnd{Cut: true}}})
		}
	}
	x := s.Board.Exchange(conn)
	if x == nil || len(notes) == 0 {
		return nil
	}
	s.Log.WarnContext(ctx, "a hub asks for output of which nothing is known here; it is told that it is lost", "conn", conn, "streams", len(notes))
	if err := x.Send(ctx, commands.QueueLogs, notes...); err != nil && ctx.Err() == nil {
		s.Log.DebugContext(ctx, "saying that output is lost; the hub asks again", "conn", conn, "err", err)
	}
	return nil
}

// Stored takes what a hub says, in a message asked, that it has on disk.
func (s *Sender) Stored(ctx context.Context, conn string, asked *signing.Ref, list []commands.StoredStream) error {
	if err := s.again(ctx, conn, asked, list); err != nil {
		return err
	}
	s.mu.Lock()
	l := s.feeds[conn]
	s.mu.Unlock()
	if l == nil {
		return nil
	}
	moved, given := l.stored(ctx, list)
	if len(moved)+len(given) == 0 {
		return nil
	}
	if err := s.Backlog.OutputSent(ctx, moved, given); err != nil {
		return err
	}
	for _, o := range moved {
		if o.All() {
			given = append(given, o.Fence)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range given {
		delete(s.outputs, outputKey{f.Task, f.Attempt})
	}
	return nil
}
