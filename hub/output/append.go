package output

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/fsync"
	"github.com/spawnmesh/spawnmesh/store"
)

// syncs is how many files are synced at a time; a file system commits those that
// wait together.
const syncs = 16

// Append stores what goes on where a stream ends, of tasks that conn runs. All
// else has no effect. It answers, per stream, how much is on disk now, with a code
// where something was refused. After an error the same pieces may come again.
func (s *Store) Append(ctx context.Context, conn string, pieces []*commands.Log) ([]commands.StoredStream, error) {
	k := s.of(conn)
	k.Lock()
	defer k.Unlock()
	tasks := make([]string, len(pieces))
	for i, p := range pieces {
		tasks[i] = p.Task
	}
	logs, err := s.DB.LogsOf(ctx, conn, tasks)
	if err != nil {
		return nil, err
	}
	a := &appending{store: s, conn: conn, now: time.Now(), logs: logs, tails: map[string]*tail{}, place: map[streamKey]int{}}
	for _, p := range pieces {
		if err := a.take(p); err != nil {
			return nil, err
		}
	}
	if err := a.write(ctx); err != nil {
		return nil, fmt.Errorf("storing output: %w", err)
	}
	for _, t := range a.tails {
		k.added += t.log.Tail - t.was
		if err := s.dropFirst(ctx, t.all()); err != nil {
			s.Log.WarnContext(ctx, "dropping the oldest output of an agent; it is tried again", "id", t.log.Task, "err", err)
		}
	}
	if k.added > s.perSpoke()/16 {
		k.added = 0
		if err := s.dropOld(ctx, conn); err != nil {
			s.Log.WarnContext(ctx, "dropping the oldest output of a spoke; it is tried again", "conn", conn, "err", err)
		}
	}
	return a.stored, nil
}

type streamKey struct {
	task    string
	attempt int
	stream  string
}

// appending is one call of Append.
type appending struct {
	store  *Store
	conn   string
	now    time.Time
	logs   map[string]*store.Log
	tails  map[string]*tail // of logs that grow
	stored []commands.StoredStream
	place  map[streamKey]int // in stored
}

// A tail is the growing end of a log: what is to be written, by segment.
type tail struct {
	log      *store.Log
	was      int64
	segments []*writing // the present one, and those that begin
	changed  map[streamKey]store.LogStream
}

// writing is what is appended to one segment.
type writing struct {
	store.LogSegment
	from int64 // valid bytes of its file before
	data []byte
}

// take decides about one piece, by what is stored and by the pieces before it.
func (a *appending) take(p *commands.Log) error {
	key := streamKey{p.Task, p.Attempt, p.Stream}
	l := a.logs[p.Task]
	if l == nil {
		a.answer(key, store.LogStream{}, commands.UnknownTask)
		return nil
	}
	t := a.tails[p.Task]
	st := l.Stream(p.Attempt, p.Stream)
	if t != nil {
		if changed, ok := t.changed[key]; ok {
			st = changed
		}
	}
	end := p.Offset + int64(len(p.Data))
	switch {
	case end <= st.Through && (p.End == nil || st.Ended != nil), len(p.Data) == 0 && p.End == nil && p.Offset == st.Through:
		a.answer(key, st, "") // a repetition
		return nil
	case st.Ended != nil, p.Offset != st.Through:
		a.answer(key, st, commands.Offset)
		return nil
	}
	if t == nil {
		t = a.begin(l)
	}
	list, err := recordsOf(p, a.now)
	if err != nil {
		return err
	}
	for _, r := range list {
		t.append(r, a.store.Bounds.segment())
	}
	st.Through = end
	if p.End != nil {
		st.Ended = p.End
	}
	t.changed[key] = st
	a.answer(key, st, "")
	return nil
}

// begin opens a log that grows: in its last segment, if its file has not lost what
// the index says that it has.
func (a *appending) begin(l *store.Log) *tail {
	t := &tail{log: l, was: l.Tail, changed: map[streamKey]store.LogStream{}}
	a.tails[l.Task] = t
	if n := len(l.Segments); n > 0 {
		g := l.Segments[n-1]
		if info, err := os.Stat(a.store.file(a.conn, l.Task, g.Base)); err == nil && info.Size() >= g.Bytes {
			t.segments = append(t.segments, &writing{LogSegment: g, from: g.Bytes})
		}
	}
	return t
}

// answer keeps the newest answer per stream; a refusal stays.
func (a *appending) answer(key streamKey, st store.LogStream, code commands.Code) {
	i, found := a.place[key]
	if !found {
		i = len(a.stored)
		a.place[key] = i
		a.stored = append(a.stored, commands.StoredStream{Task: key.task, Attempt: key.attempt, Stream: key.stream})
	}
	s := &a.stored[i]
	s.Through, s.Ended = st.Through, st.Ended != nil
	if code != "" {
		s.Code = code
	}
}

// append adds a record to the last segment, or to a new one where that is full.
func (t *tail) append(r record, full int64) {
	n := len(t.segments)
	if n == 0 || t.segments[n-1].Bytes > 0 && t.segments[n-1].Bytes+r.size() > full {
		t.segments = append(t.segments, &writing{LogSegment: store.LogSegment{Task: t.log.Task, Base: t.log.Tail, New: true}})
		n++
	}
	w := t.segments[n-1]
	w.data = r.append(w.data)
	w.Bytes += r.size()
	t.log.Tail += r.size()
}

// all returns the segments of the log with what was written.
func (t *tail) all() *store.Log {
	l := *t.log
	for _, w := range t.segments {
		if w.New {
			l.Segments = append(l.Segments, w.LogSegment)
		} else if len(w.data) > 0 {
			l.Segments[len(l.Segments)-1] = w.LogSegment
		}
	}
	return &l
}

// write puts the bytes on disk, and then into the index.
func (a *appending) write(ctx context.Context) error {
	if len(a.tails) == 0 {
		return nil
	}
	var g errgroup.Group
	g.SetLimit(syncs)
	was := map[string]int64{}
	var grown []*store.Log
	for task, t := range a.tails {
		l := &store.Log{Task: task, Tail: t.log.Tail}
		was[task] = t.was
		for _, st := range t.changed {
			l.Streams = append(l.Streams, st)
		}
		for _, w := range t.segments {
			if len(w.data) > 0 {
				l.Segments = append(l.Segments, w.LogSegment)
				g.Go(func() error { return w.write(a.store.file(a.conn, task, w.Base)) })
			}
		}
		grown = append(grown, l)
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return a.store.DB.GrowLogs(ctx, a.conn, was, grown)
}

// write appends to the file behind its valid part, over what a crash left there,
// and syncs it.
func (w *writing) write(name string) error {
	if w.New {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return fmt.Errorf("making the directory of a log: %w", err)
		}
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("opening a segment of a log: %w", err)
	}
	defer f.Close()
	if _, err := f.WriteAt(w.data, w.from); err != nil {
		return fmt.Errorf("writing a segment of a log: %w", err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("syncing a segment of a log: %w", err)
	}
	if !w.New {
		return nil
	}
	dir := filepath.Dir(name)
	for range 3 { // the file in its directory, that in the connection's, and that one
		if err := fsync.Dir(dir); err != nil {
			return err
		}
		dir = filepath.Dir(dir)
	}
	return nil
}
