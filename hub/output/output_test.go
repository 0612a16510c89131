package output_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/output"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A place keeps the output of one spoke's agents.
type place struct {
	testing.TB
	*output.Store
	hub *storetest.Side
}

func newPlace(t testing.TB, b output.Bounds) place {
	t.Helper()
	hub := storetest.NewPair(t).Hub
	return place{t, &output.Store{DB: hub.DB, Dir: filepath.Join(t.TempDir(), "logs"), Bounds: b, Log: slog.New(slog.DiscardHandler)}, hub}
}

// ordered returns a task of the spoke.
func (p place) ordered() string {
	p.Helper()
	task := storetest.NewID()
	_, err := p.hub.DB.OrderSpawns(p.Context(), []store.SpawnOrder{{Conn: p.hub.Conn.ID, Life: time.Hour, Actor: "test",
		Spawn: &commands.Spawn{Task: task, Runtime: commands.RuntimeNoop}}})
	require.NoError(p, err)
	return task
}

// fill appends size bytes from offset in pieces.
func (p place) fill(task string, offset, size int64) {
	p.Helper()
	for at := offset; at < offset+size; {
		n := min(int64(100_000), offset+size-at)
		data := bytes.Repeat([]byte{byte(at)}, int(n))
		stored, err := p.Append(p.Context(), p.hub.Conn.ID, []*commands.Log{{Task: task, Attempt: 1, Stream: "stdout", Offset: at, Data: data}})
		require.NoError(p, err)
		at += n
		require.Equal(p, []commands.StoredStream{{Task: task, Attempt: 1, Stream: "stdout", Through: at}}, stored)
	}
}

// read returns what is there: the bytes behind the marks, and the marks.
func (p place) read(task string) (bytes int64, marks []output.Dropped) {
	p.Helper()
	next := int64(-1)
	p.readOn(task, &output.Cursor{}, func(l output.Piece) error {
		if l.Dropped != nil {
			marks = append(marks, *l.Dropped)
			if l.Stream != "" {
				next = l.Dropped.Bytes
			}
			return nil
		}
		require.True(p, next < 0 || next == l.Offset, "a piece at %d follows %d", l.Offset, next)
		next = l.Offset + int64(len(l.Data))
		bytes += int64(len(l.Data))
		return nil
	})
	return bytes, marks
}

// readOn reads what is behind c, with a fresh index where it has to be read again: once.
func (p place) readOn(task string, c *output.Cursor, emit func(output.Piece) error) {
	p.Helper()
	for done, again := false, 0; !done; again++ {
		require.Less(p, again, 2, "a file that is gone is looked for without end")
		log, err := p.hub.DB.Log(p.Context(), task)
		require.NoError(p, err)
		done, err = p.Read(p.Context(), log, c, emit)
		require.NoError(p, err)
	}
}

// onDisk returns what all files hold, and checks that nobody else may read them.
func (p place) onDisk() (sum int64) {
	p.Helper()
	require.NoError(p, filepath.WalkDir(p.Dir, func(path string, d fs.DirEntry, err error) error {
		require.NoError(p, err)
		info, err := d.Info()
		require.NoError(p, err)
		if d.IsDir() {
			require.Equal(p, fs.FileMode(0o700), info.Mode().Perm(), path)
			return nil
		}
		require.Equal(p, fs.FileMode(0o600), info.Mode().Perm(), path)
		sum += info.Size()
		return nil
	}))
	return sum
}

// An agent that writes without end costs its bound and a segment, and who reads
// is told how much is missing in front.
func TestTheBoundOfAnAgent(t *testing.T) {
	t.Parallel()
	p := newPlace(t, output.Bounds{Agent: 1 << 20})
	task := p.ordered()

	p.fill(task, 0, 20_000_000)

	require.LessOrEqual(t, p.onDisk(), int64(1<<20+1<<18))
	kept, marks := p.read(task)
	require.Greater(t, kept, int64(1<<19))
	require.Equal(t, []output.Dropped{{By: "hub", Bytes: 20_000_000 - kept}}, marks)
	p.fill(task, 20_000_000, 100)
	log, err := p.hub.DB.Log(t.Context(), task)
	require.NoError(t, err)
	require.Equal(t, int64(20_000_100), log.Stream(1, "stdout").Through)
}

// The agents of a spoke share its bound: the oldest output goes first.
func TestTheBoundOfASpoke(t *testing.T) {
	t.Parallel()
	p := newPlace(t, output.Bounds{Spoke: 2 << 20})
	var tasks []string
	for range 6 {
		tasks = append(tasks, p.ordered())
		p.fill(tasks[len(tasks)-1], 0, 700_000)
	}

	require.LessOrEqual(t, p.onDisk(), int64(2<<20+2<<20/16+200_000))
	_, marks := p.read(tasks[0])
	require.Equal(t, []output.Dropped{{By: "hub", Bytes: 700_000}}, marks, "all of the oldest")
	kept, marks := p.read(tasks[5])
	require.Equal(t, int64(700_000), kept)
	require.Empty(t, marks)
	p.fill(tasks[0], 700_000, 100)
	kept, marks = p.read(tasks[0])
	require.Equal(t, int64(100), kept)
	require.Equal(t, []output.Dropped{{By: "hub", Bytes: 700_000}}, marks)
}

// All spokes share what a hub keeps: as many as there are, that much less is kept of each.
func TestTheBoundOfAHub(t *testing.T) {
	t.Parallel()
	pair := storetest.NewPair(t)
	p := place{t, &output.Store{DB: pair.Hub.DB, Dir: filepath.Join(t.TempDir(), "logs"), Bounds: output.Bounds{All: 3 << 20}, Log: slog.New(slog.DiscardHandler)}, pair.Hub}
	q := place{t, p.Store, pair.Another(t).Hub}
	for _, at := range []place{p, p, p, q} {
		at.fill(at.ordered(), 0, 900_000)
	}
	require.NoError(t, p.Sweep(t.Context()))
	require.LessOrEqual(t, p.onDisk(), int64(3<<20))

	last := q.ordered()
	q.fill(last, 0, 900_000)
	require.NoError(t, p.Sweep(t.Context()))

	require.LessOrEqual(t, p.onDisk(), int64(3<<20))
	kept, marks := q.read(last)
	require.Equal(t, int64(900_000), kept)
	require.Empty(t, marks)
}

// What is old goes, with its files. Files that nobody knows go too, but not while they
// are young; those of a log that is known stay, however old they are.
func TestOldOutput(t *testing.T) {
	t.Parallel()
	p := newPlace(t, output.Bounds{Age: time.Hour})
	old, fresh, gone := p.ordered(), p.ordered(), p.ordered()
	for _, task := range []string{old, fresh, gone} {
		p.fill(task, 0, 1000)
	}
	require.NoError(t, p.hub.Exec(fmt.Sprintf(`UPDATE log_segments SET at = now() - interval '2 hours' WHERE task = '%s'`, old)))
	require.NoError(t, p.hub.Exec(fmt.Sprintf(`DELETE FROM mirrors WHERE task = '%s'`, gone)))
	long := time.Now().Add(-2 * time.Hour)
	dir := func(task string) string { return filepath.Join(p.Dir, p.hub.Conn.ID, task) }
	for _, task := range []string{fresh, gone} {
		require.NoError(t, os.Chtimes(dir(task), long, long))
	}
	young := storetest.NewID()
	require.NoError(t, os.Mkdir(dir(young), 0o700))

	require.NoError(t, p.Sweep(t.Context()))

	kept, marks := p.read(old)
	require.Zero(t, kept)
	require.Equal(t, []output.Dropped{{By: "hub", Bytes: 1000}}, marks)
	kept, marks = p.read(fresh)
	require.Equal(t, int64(1000), kept)
	require.Empty(t, marks)
	left, err := filepath.Glob(filepath.Join(p.Dir, "*", "*", "*"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir(fresh), "0")}, left)
	require.DirExists(t, dir(young), "the index may be about to be told of it")
	require.NoDirExists(t, dir(gone))
}

// What the disk lost or changed is marked, and what comes afterwards is there.
func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(t *testing.T, file string){
		"removed": func(t *testing.T, file string) { require.NoError(t, os.Remove(file)) },
		"cut":     func(t *testing.T, file string) { require.NoError(t, os.Truncate(file, 500)) },
		"changed": func(t *testing.T, file string) {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			data[600] ^= 1
			require.NoError(t, os.WriteFile(file, data, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, output.Bounds{})
			task := p.ordered()
			p.fill(task, 0, 1000)
			harm(t, filepath.Join(p.Dir, p.hub.Conn.ID, task, "0"))

			p.fill(task, 1000, 10)

			kept, marks := p.read(task)
			require.Equal(t, []output.Dropped{{By: "hub", Cut: true}}, marks)
			if name != "changed" { // then it is in the same segment
				require.Equal(t, int64(10), kept)
			}
		})
	}
}

// A damaged segment that is dropped leaves no hole without a mark: who reads is told of every byte that
// is not there, of each stream, and the log says once that it could not be read.
func TestADamagedFileIsDropped(t *testing.T) {
	t.Parallel()
	spoil := func(at int64) func(t *testing.T, file string) {
		return func(t *testing.T, file string) {
			f, err := os.OpenFile(file, os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = f.WriteAt(bytes.Repeat([]byte{0xff}, 18), at)
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}
	}
	for name, tt := range map[string]struct {
		harm func(t *testing.T, file string)
		all  bool // it is dropped with all that was kept
	}{
		"its first record":         {spoil(0), false},
		"a record in the middle":   {spoil(41_000), false},
		"all of it":                {func(t *testing.T, file string) { require.NoError(t, os.Remove(file)) }, false},
		"with all that was behind": {spoil(0), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, output.Bounds{Agent: 400_000})
			var said bytes.Buffer
			p.Store.Log = slog.New(slog.NewTextHandler(&said, nil))
			task := p.ordered()
			through := p.both(task, 0, 200_000)
			first := filepath.Join(p.Dir, p.hub.Conn.ID, task, "0")
			tt.harm(t, first)

			if tt.all {
				require.NoError(t, p.hub.Exec(`UPDATE log_segments SET at = now() - interval '40 days'`))
				require.NoError(t, p.Sweep(t.Context()))
			}
			for base := int64(0); base == 0; { // up to when it alone is dropped
				through = p.both(task, through, 10_000)
				log, err := p.hub.DB.Log(t.Context(), task)
				require.NoError(t, err)
				base = log.Segments[0].Base
			}

			require.NoFileExists(t, first)
			require.Equal(t, map[string]int64{"stdout": through, "stderr": through / 10}, p.follow(task))
			require.Equal(t, 1, strings.Count(said.String(), "dropping output that cannot be read"), said.String())
		})
	}
}

// both appends size bytes of stdout from offset in pieces, each with a tenth as much of stderr.
func (p place) both(task string, offset, size int64) (through int64) {
	p.Helper()
	for through = offset; through < offset+size; through += 10_000 {
		p.append(task, "stdout", through, strings.Repeat("o", 10_000))
		p.append(task, "stderr", through/10, strings.Repeat("e", 1000))
	}
	return through
}

// follow reads a log from its beginning, and returns how far each stream goes: of every byte there is
// the byte or a mark.
func (p place) follow(task string) map[string]int64 {
	p.Helper()
	at := map[string]int64{}
	p.readOn(task, &output.Cursor{}, func(l output.Piece) error {
		require.Equal(p, at[l.Stream], l.Offset, "of %s", l.Stream)
		at[l.Stream] += int64(len(l.Data))
		if l.Dropped != nil {
			at[l.Stream] += l.Dropped.Bytes
		}
		return nil
	})
	return at
}

// What a crash left behind the valid end of a file is nobody's output.
func TestWhatACrashLeftIsNotShown(t *testing.T) {
	t.Parallel()
	p := newPlace(t, output.Bounds{})
	task := p.ordered()
	p.fill(task, 0, 1000)
	f, err := os.OpenFile(filepath.Join(p.Dir, p.hub.Conn.ID, task, "0"), os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(t, err)
	_, err = f.Write(bytes.Repeat([]byte("x"), 500))
	require.NoError(t, err)
	require.NoError(t, f.Close())

	p.fill(task, 1000, 10)

	kept, marks := p.read(task)
	require.Equal(t, int64(1010), kept)
	require.Empty(t, marks)
}

// A reader learns what its keeper dropped of a stream, and that it was cut off.
func TestTheEndOfAStreamSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		end  commands.LogEnd
		want []output.Dropped
	}{
		"all of it is there": {commands.LogEnd{}, nil},
		"it has gaps": {commands.LogEnd{Gaps: []commands.Gap{{From: 2, To: 9, At: 2}, {From: 11, To: 12, At: 4}}},
			[]output.Dropped{{By: "spoke", Bytes: 7, From: 2}, {By: "spoke", Bytes: 1, From: 11}}},
		"it was cut": {commands.LogEnd{Cut: true}, []output.Dropped{{By: "spoke", From: 5, Cut: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, output.Bounds{})
			task := p.ordered()
			_, err := p.Append(t.Context(), p.hub.Conn.ID, []*commands.Log{{Task: task, Attempt: 1, Stream: "stdout", Data: []byte("abcde"), End: &tt.end}})
			require.NoError(t, err)

			_, marks := p.read(task)

			require.Equal(t, tt.want, marks)
		})
	}
}

// The spoke is told of every stream of which a piece was refused, whatever pieces
// of it were taken in the same call.
func TestARefusalIsToldWithWhatWasTaken(t *testing.T) {
	t.Parallel()
	p := newPlace(t, output.Bounds{})
	task := p.ordered()
	piece := func(offset int64, data string) *commands.Log {
		return &commands.Log{Task: task, Attempt: 1, Stream: "stdout", Offset: offset, Data: []byte(data)}
	}

	stored, err := p.Append(t.Context(), p.hub.Conn.ID, []*commands.Log{piece(0, "ab"), piece(7, "early"), piece(2, "cd")})

	require.NoError(t, err)
	require.Equal(t, []commands.StoredStream{{Task: task, Attempt: 1, Stream: "stdout", Through: 4, Code: commands.Offset}}, stored)
}

// Of an agent whose bound is less than what it writes at once, the end is kept.
func TestTheLastOfItStaysWhateverTheBound(t *testing.T) {
	t.Parallel()
	p := newPlace(t, output.Bounds{Agent: 1000})
	task := p.ordered()

	p.fill(task, 0, 300_000)

	kept, marks := p.read(task)
	require.Equal(t, int64(100_000), kept)
	require.Equal(t, []output.Dropped{{By: "hub", Bytes: 200_000}}, marks)
}

// Nothing is confirmed that is not on disk.
func TestWhatCannotBeWrittenIsNotConfirmed(t *testing.T) {
	t.Parallel()
	p := newPlace(t, output.Bounds{})
	task := p.ordered()
	require.NoError(t, os.WriteFile(p.Dir, nil, 0o600)) // a file where the directory should be

	_, err := p.Append(t.Context(), p.hub.Conn.ID, []*commands.Log{{Task: task, Attempt: 1, Stream: "stdout", Data: []byte("x")}})

	require.Error(t, err)
	log, err := p.hub.DB.Log(t.Context(), task)
	require.NoError(t, err)
	require.Empty(t, log.Streams)
	require.NoError(t, os.Remove(p.Dir))
	p.fill(task, 0, 1)
}
