package output

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/store"
)

// dropFirst drops the oldest segments of a log that holds more than it may, but
// not the one that grows. The caller holds the lock of the connection.
func (s *Store) dropFirst(ctx context.Context, l *store.Log) error {
	var sum int64
	for _, g := range l.Segments {
		sum += g.Bytes
	}
	n := 0
	for ; n < len(l.Segments)-1 && sum > s.Bounds.agent(); n++ {
		sum -= l.Segments[n].Bytes
	}
	return s.drop(ctx, l.Conn, l.Segments[:n])
}

// dropOld drops the oldest segments of a spoke that holds more than it may, and
// those that are too old. The caller holds the lock of the connection.
func (s *Store) dropOld(ctx context.Context, conn string) error {
	for {
		list, err := s.DB.OldSegments(ctx, conn, store.LogBound{Bytes: s.perSpoke(), Age: s.Bounds.age()})
		if err == nil {
			err = s.drop(ctx, conn, list)
		}
		if err != nil || len(list) < store.DropBatch {
			return err
		}
	}
}

// drop takes segments out of the index, and then their files away.
func (s *Store) drop(ctx context.Context, conn string, list []store.LogSegment) error {
	if len(list) == 0 {
		return nil
	}
	ends, err := s.ends(ctx, conn, list)
	if err != nil {
		return err
	}
	var streams []store.LogStream
	for k, through := range ends {
		streams = append(streams, store.LogStream{Task: k.task, Attempt: k.attempt, Stream: k.stream, Through: through})
	}
	if err := s.DB.DropSegments(ctx, list, streams); err != nil {
		return err
	}
	for _, g := range list {
		if err := os.Remove(s.file(conn, g.Task, g.Base)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing an old segment of a log: %w", err)
		}
		_ = os.Remove(s.logDir(conn, g.Task)) // fails while there are others
	}
	return nil
}

// ends returns how far each stream goes in segments that are dropped. Where one of them is damaged,
// that is up to what is kept of the stream: nobody can read how far it went, and nothing between the
// two is anywhere.
func (s *Store) ends(ctx context.Context, conn string, list []store.LogSegment) (map[streamKey]int64, error) {
	ends, damaged := map[streamKey]int64{}, map[string]error{}
	for _, g := range list {
		err := s.each(conn, g, func(key streamKey, from, to int64) { ends[key] = to })
		if err != nil && damaged[g.Task] == nil {
			damaged[g.Task] = err
		}
	}
	for task, err := range damaged {
		s.Log.WarnContext(ctx, "dropping output that cannot be read", "id", task, "err", err)
		if err := s.toKept(ctx, conn, task, list, ends); err != nil {
			return nil, err
		}
	}
	return ends, nil
}

// toKept sets for each stream of a task where what is kept of it begins, without what is dropped; its
// end where nothing is.
func (s *Store) toKept(ctx context.Context, conn, task string, dropped []store.LogSegment, ends map[streamKey]int64) error {
	l, err := s.DB.Log(ctx, task)
	if err != nil {
		return err
	}
	for _, st := range l.Streams {
		ends[streamKey{task, st.Attempt, st.Stream}] = st.Through
	}
	for _, g := range l.Segments {
		if slices.ContainsFunc(dropped, func(d store.LogSegment) bool { return d.Task == task && d.Base == g.Base }) {
			continue
		}
		// What is damaged here is no more to be had than what is dropped, and is marked when it is read.
		_ = s.each(conn, g, func(key streamKey, from, to int64) { ends[key] = min(ends[key], from) })
	}
	return nil
}

// each tells of the output in a segment, up to where it is damaged: of which bytes of which stream.
func (s *Store) each(conn string, g store.LogSegment, tell func(key streamKey, from, to int64)) error {
	data, err := s.load(conn, g)
	for err == nil && len(data) > 0 {
		var r record
		if r, data, err = next(data); err == nil && r.kind == recordData {
			tell(streamKey{g.Task, r.attempt, r.stream}, r.offset, r.offset+int64(len(r.data)))
		}
	}
	return err
}

// load returns the valid part of a segment.
func (s *Store) load(conn string, g store.LogSegment) ([]byte, error) {
	f, err := os.Open(s.file(conn, g.Task, g.Base))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data := make([]byte, g.Bytes)
	if _, err := f.ReadAt(data, 0); err != nil {
		return nil, fmt.Errorf("reading %s: %w", f.Name(), err)
	}
	return data, nil
}

// leftOver is how old a directory is at least that nothing in the index knows and
// that is removed: a younger one may be about to be told to the index.
const leftOver = time.Hour

// Sweep drops what is too old or too much of every spoke, and files of logs that
// are no longer in the index.
func (s *Store) Sweep(ctx context.Context) error {
	dirs, err := filepath.Glob(filepath.Join(s.Dir, "*", "*"))
	if err != nil {
		return fmt.Errorf("looking through the logs in %s: %w", s.Dir, err)
	}
	tasks := make([]string, len(dirs))
	for i, dir := range dirs {
		tasks[i] = filepath.Base(dir)
	}
	conns, known, err := s.DB.LogConns(ctx, tasks)
	if err != nil {
		return err
	}
	s.share.Store(s.Bounds.all() / int64(max(len(conns), 1)))
	for _, conn := range conns {
		if err := s.sweepConn(ctx, conn); err != nil {
			return err
		}
	}
	for i, dir := range dirs {
		info, err := os.Stat(dir)
		if known[filepath.Base(filepath.Dir(dir))+"/"+tasks[i]] || err != nil || time.Since(info.ModTime()) < leftOver {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("removing the files of a log that is gone: %w", err)
		}
	}
	return nil
}

func (s *Store) sweepConn(ctx context.Context, conn string) error {
	k := s.of(conn)
	k.Lock()
	defer k.Unlock()
	k.added = 0
	return s.dropOld(ctx, conn)
}
