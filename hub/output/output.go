// Package output keeps the output of agents on spokes in files of the hub.
//
// The output of a task is one log: a sequence of records, each a piece of a
// stream or the end of one, in the order of their arrival. It is cut into
// segments, files that only grow, DIR/CONNECTION/TASK/POSITION. The database
// knows which segments exist and how far each is valid; it is told after the
// bytes are on disk, and only then is the spoke told that they are stored. So a
// crash leaves bytes behind the valid end of a file at most: nobody reads them, and
// the next append writes over them.
//
// Old segments are dropped when a log, or all logs of one spoke, hold more than
// they may, or when nothing was added to them for long. What is gone is always
// the beginning of a log; readers are told how much of each stream that was.
package output

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// Bounds say how much output is kept. A log goes beyond its bound by one segment
// at most, and the logs of a spoke by a sixteenth.
type Bounds struct {
	Agent int64         // bytes of one log; 0 means 64 MiB
	Spoke int64         // bytes of all logs of one spoke; 0 means 1 GiB
	All   int64         // bytes of all logs: each spoke has an equal share where that is less; 0 means 64 GiB
	Age   time.Duration // 0 means 30 days
}

// segmentMost is the size at which a segment is full.
const segmentMost = 4 << 20

// A Store keeps output. Its exported fields are set before any method is called.
type Store struct {
	DB     *store.DB
	Dir    string
	Bounds Bounds
	Log    *slog.Logger

	share atomic.Int64 // of Bounds.All for each spoke, as it was when there was swept; 0: not yet

	mu    sync.Mutex // guards conns
	conns map[string]*keeping
}

// keeping is what this process knows of the logs of one connection.
type keeping struct {
	sync.Mutex       // one append or drop at a time
	added      int64 // bytes since it was last looked for what is too much
}

func (s *Store) of(conn string) *keeping {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		s.conns = map[string]*keeping{}
	}
	if s.conns[conn] == nil {
		s.conns[conn] = &keeping{}
	}
	return s.conns[conn]
}

func (b Bounds) agent() int64 { return cmp.Or(b.Agent, 64<<20) }
func (b Bounds) spoke() int64 { return cmp.Or(b.Spoke, 1<<30) }

func (b Bounds) all() int64 { return cmp.Or(b.All, 64<<30) }

// perSpoke is how much is kept of one spoke now.
func (s *Store) perSpoke() int64 {
	return min(s.Bounds.spoke(), cmp.Or(s.share.Load(), s.Bounds.all()))
}

func (b Bounds) age() time.Duration { return cmp.Or(b.Age, 30*24*time.Hour) }

// NoteBounds tells the database what the bounds are, for who looks at what is kept.
func (s *Store) NoteBounds(ctx context.Context) error {
	return s.DB.NoteLogBounds(ctx, s.Bounds.age(), fmt.Sprintf("at most %s an agent, %s a spoke, %s in all",
		commands.SizeInWords(s.Bounds.agent()), commands.SizeInWords(s.Bounds.spoke()), commands.SizeInWords(s.Bounds.all())))
}

// segment is the size of a full segment: small enough that a bound is kept by
// dropping some.
func (b Bounds) segment() int64 { return max(min(segmentMost, b.agent()/4, b.spoke()/16), 1) }

func (s *Store) logDir(conn, task string) string { return filepath.Join(s.Dir, conn, task) }

func (s *Store) file(conn, task string, base int64) string {
	return filepath.Join(s.logDir(conn, task), strconv.FormatInt(base, 10))
}
