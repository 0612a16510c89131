package output

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/spoke/hostfault"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// A feed sends the output for one connection.
type feed struct {
	sender *Sender
	conn   string
	wake   wait.Signal

	mu     sync.Mutex // guards the rest
	agents []*agent   // that still have output; the next one to be served first
	link   int64      // on which what is under way was sent
}

// An agent is the output of one task: attempts in their order, one at a time.
type agent struct {
	task     string
	attempts []*source
}

// A source is the output of one attempt.
type source struct {
	backlog.Output
	dir     string
	streams [2]stream
	mine    bool         // it is known to be of who gets it
	faulty  [2]time.Time // since when a stream cannot be read although the attempt is over; zero = it can
}

// A stream is where the sending of one stream stands.
type stream struct {
	sent  int64     // bytes of it under way or confirmed
	ended bool      // its end is under way, or confirmed
	since time.Time // when something last went out or was confirmed; zero while nothing is under way
	sure  bool      // the hub has said on this link where it stands
	idle  time.Time // there is nothing to read before
}

func newFeed(s *Sender, conn string) *feed {
	return &feed{sender: s, conn: conn, wake: wait.NewSignal()}
}

func (l *feed) add(o backlog.Output) {
	l.mu.Lock()
	defer l.mu.Unlock()
	src := &source{Output: o, dir: l.sender.Dir(o.Fence)}
	src.restart()
	i := slices.IndexFunc(l.agents, func(a *agent) bool { return a.task == o.Fence.Task })
	if i < 0 {
		l.agents = append(l.agents, &agent{o.Fence.Task, []*source{src}})
	} else {
		a := l.agents[i]
		a.attempts = append(a.attempts, src)
		slices.SortFunc(a.attempts, func(x, y *source) int { return x.Fence.Attempt - y.Fence.Attempt })
	}
	l.wake.Send()
}

// clear forgets everything and returns what that was.
func (l *feed) clear() (list []outputKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.agents {
		for _, src := range a.attempts {
			list = append(list, outputKey{a.task, src.Fence.Attempt})
		}
	}
	l.agents = nil
	return list
}

// some reports whether there is anything to send, now or later.
func (l *feed) some() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.agents) > 0
}

func (l *feed) run(ctx context.Context) error {
	for {
		if l.once(ctx) {
			continue
		}
		var again <-chan time.Time
		if l.some() {
			again = time.After(period)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-l.wake:
		case <-again:
		}
	}
}

// once sends what fits into the window, and reports whether that was anything.
func (l *feed) once(ctx context.Context) bool {
	x := l.sender.Board.Exchange(l.conn)
	if x == nil {
		return false
	}
	link := x.AgreedLink()
	if link == 0 {
		return false
	}
	notes := l.fill(ctx, link)
	if len(notes) == 0 {
		return false
	}
	if err := x.Send(ctx, commands.QueueLogs, notes...); err != nil {
		if ctx.Err() == nil {
			l.sender.Log.DebugContext(ctx, "sending output", "conn", l.conn, "err", err)
		}
		l.mu.Lock()
		l.link = 0 // nobody can tell what was taken: from the cursors again
		l.mu.Unlock()
		return false
	}
	return true
}

// fill reads what is next, a piece of each agent in turns, as long as the window
// is not full.
func (l *feed) fill(ctx context.Context, link int64) (notes []federation.Note) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	room := int64(window)
	for _, a := range l.agents {
		for _, src := range a.attempts {
			if l.link != link {
				src.restart()
			}
			room -= src.underWay(now)
		}
	}
	l.link = link
	for quiet := 0; room > 0 && quiet < len(l.agents) && ctx.Err() == nil; {
		a := l.agents[0]
		l.agents = append(l.agents[1:], a)
		note := a.attempts[0].next(ctx, l, now)
		if note == nil {
			quiet++
			continue
		}
		quiet = 0
		room -= cost + int64(len(note.Body.(*commands.Log).Data))
		notes = append(notes, *note)
	}
	return notes
}

// restart goes back to what is confirmed.
func (src *source) restart() {
	for i, s := range src.Streams {
		src.streams[i] = stream{sent: s.Through, ended: s.Ended}
	}
}

// underWay returns how much of the window is taken. What was not confirmed in time
// goes again.
func (src *source) underWay(now time.Time) (sum int64) {
	for i := range src.streams {
		s, c := &src.streams[i], src.Streams[i]
		if !s.since.IsZero() && now.Sub(s.since) > patience {
			*s = stream{sent: c.Through, ended: c.Ended}
		}
		if !s.since.IsZero() {
			sum += cost + s.sent - c.Through
		}
	}
	return sum
}

// next returns the next piece of an attempt; nil when there is none now.
func (src *source) next(ctx context.Context, l *feed, now time.Time) *federation.Note {
	for i, name := range commands.Streams {
		s := &src.streams[i]
		if s.ended || !s.since.IsZero() && !s.sure || now.Before(s.idle) {
			continue
		}
		body := &commands.Log{Task: src.Fence.Task, Attempt: src.Fence.Attempt, Stream: name, Offset: s.sent}
		p, err := l.read(src, supervisor.Stream(name), s.sent)
		if broken := l.broken(src, i, err, now); broken || errors.Is(err, supervisor.ErrUnreadable) || err != nil && gone(src.dir) {
			body.End = &commands.LogEnd{Cut: true} // somebody has removed the attempt, or its agent has changed the file, or it is on a bad disk
			l.sender.Log.WarnContext(ctx, "output that was not sent yet is gone", "id", src.Fence.Task, "attempt", src.Fence.Attempt, "stream", name, "from", s.sent, "err", err)
		} else if err != nil {
			s.idle = now.Add(min(patience, l.sender.Mends()))
			l.sender.Log.WarnContext(ctx, "reading output to be sent; it is tried again", "id", src.Fence.Task, "stream", name, "err", err)
			continue
		}
		if body.Data = p.Data; p.Ended {
			body.End = endOf(p.Output)
		}
		if len(body.Data) == 0 && body.End == nil {
			s.idle = now.Add(period)
			continue
		}
		s.sent, s.ended, s.since = s.sent+int64(len(body.Data)), body.End != nil, now
		return &federation.Note{Body: body, Re: &signing.Ref{ID: src.Asked.Command, SHA256: src.Asked.Digest, Attempt: src.Fence.Attempt, Fence: src.Fence.Epoch}}
	}
	return nil
}

// read reads on in a stream. Of an attempt that is another connection's there is nothing to read for this one.
func (l *feed) read(src *source, name supervisor.Stream, from int64) (supervisor.Piece, error) {
	if !src.mine && l.sender.Others != nil {
		others, err := l.sender.Others(l.conn, src.Fence)
		if others {
			err = fmt.Errorf("it is another connection's: %w", supervisor.ErrUnreadable)
		}
		if err != nil {
			return supervisor.Piece{}, err
		}
	}
	src.mine = true
	return supervisor.Read(src.dir, name, from, piece, l.sender.Cap())
}

// broken reports whether a disk does not give a stream of an attempt that is over for as long as it has to mend: what later attempts of the
// task have written waits for it no longer.
func (l *feed) broken(src *source, i int, err error, now time.Time) bool {
	switch at := &src.faulty[i]; {
	case err == nil:
		*at = time.Time{}
		return false
	case hostfault.NoRoom(err), l.sender.Lives(src.Fence):
		return false
	case at.IsZero():
		*at = now
	}
	return now.Sub(src.faulty[i]) >= l.sender.Mends()
}

func gone(dir string) bool {
	_, err := os.Lstat(dir)
	return os.IsNotExist(err)
}

// endOf describes the end of a stream as its supervisor saw it.
func endOf(o supervisor.Output) *commands.LogEnd {
	end := &commands.LogEnd{Cut: o.Cut}
	for _, g := range o.Gaps {
		end.Gaps = append(end.Gaps, commands.Gap{From: g.From, To: g.To, At: g.At})
	}
	return end
}

// stored moves cursors to where the hub says that it stands. It returns those that
// moved, and what the hub does not want.
func (l *feed) stored(ctx context.Context, list []commands.StoredStream) (moved []backlog.Output, given []backlog.Fence) {
	l.mu.Lock()
	defer l.mu.Unlock()
	touched := map[*source]bool{}
	for _, st := range list {
		a, src := l.find(st.Task, st.Attempt)
		if src == nil {
			continue
		}
		if st.Code == commands.UnknownTask {
			l.sender.Log.WarnContext(ctx, "the hub does not know the task of this output, and gets no more of it", "id", st.Task, "attempt", st.Attempt)
			given = append(given, src.Fence)
			l.remove(a, src)
			delete(touched, src)
			continue
		}
		if src.heard(st) {
			touched[src] = true
		}
	}
	for src := range touched {
		moved = append(moved, src.Output)
		if src.All() {
			a, _ := l.find(src.Fence.Task, src.Fence.Attempt)
			l.remove(a, src)
		}
	}
	l.wake.Send()
	return moved, given
}

func (l *feed) find(task string, number int) (*agent, *source) {
	for _, a := range l.agents {
		if a.task != task {
			continue
		}
		for _, src := range a.attempts {
			if src.Fence.Attempt == number {
				return a, src
			}
		}
	}
	return nil, nil
}

func (l *feed) remove(a *agent, src *source) {
	a.attempts = slices.DeleteFunc(a.attempts, func(x *source) bool { return x == src })
	if len(a.attempts) == 0 {
		l.agents = slices.DeleteFunc(l.agents, func(x *agent) bool { return x == a })
	}
}

// heard takes the hub's word about one stream, and reports whether the cursor has
// moved. A hub that was restored may have less than it had.
func (src *source) heard(st commands.StoredStream) bool {
	i := slices.Index(commands.Streams, st.Stream)
	s, c := &src.streams[i], &src.Streams[i]
	if st.Through > s.sent && !src.has(st.Stream, st.Through) && !src.lost(i) {
		return false // it cannot have that
	}
	was := *c
	*c = backlog.Sent{Through: st.Through, Ended: st.Ended}
	switch {
	case st.Code != "", st.Through < was.Through, st.Through > s.sent, st.Ended:
		*s = stream{sent: st.Through, ended: st.Ended, sure: st.Code == ""}
	default:
		s.sure = true
		if s.since = time.Now(); s.sent == st.Through && !s.ended {
			s.since = time.Time{}
		}
	}
	return *c != was
}

// lost reports whether the file of a stream is gone, or on a bad disk, and its end was sent as cut: this spoke was restored from a backup, and its
// hub may have got more before than is known here. The stream never grows again, so its end is where the hub stands.
func (src *source) lost(i int) bool {
	_, err := os.Lstat(filepath.Join(src.dir, commands.Streams[i]))
	return src.streams[i].ended && (os.IsNotExist(err) || hostfault.Is(err))
}

// has reports whether a stream is as long as that. Before it is known whose it is nothing is said of it.
func (src *source) has(stream string, size int64) bool {
	info, err := os.Stat(filepath.Join(src.dir, stream))
	return src.mine && err == nil && info.Size() >= size
}
