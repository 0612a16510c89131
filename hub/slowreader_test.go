package hub

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/hub/output"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// A writer writes the output of an agent to a hub.
type writer struct {
	*testing.T
	hub  *Hub
	side *storetest.Side
	task string
	at   map[string]int64
}

// newWriter returns one at a hub that keeps at least 200,000 bytes of each log, and less than 300,000.
func newWriter(t *testing.T) *writer {
	side := storetest.NewPair(t).Hub
	h := &Hub{DB: side.DB, board: &federation.Board{}, output: &output.Store{DB: side.DB, Dir: filepath.Join(t.TempDir(), "logs"),
		Bounds: output.Bounds{Agent: 250_000}, Log: slog.New(slog.DiscardHandler)}}
	w := &writer{T: t, hub: h, side: side, task: storetest.NewID(), at: map[string]int64{}}
	_, err := h.DB.OrderSpawns(t.Context(), []store.SpawnOrder{{Conn: side.Conn.ID, Life: time.Hour, Actor: "test",
		Spawn: &commands.Spawn{Task: w.task, Runtime: commands.RuntimeNoop}}})
	require.NoError(t, err)
	return w
}

// write writes so many pieces of 20,000 bytes.
func (w *writer) write(stream string, pieces int) {
	w.Helper()
	for range pieces {
		data := bytes.Repeat([]byte{byte(w.at[stream] / 20_000)}, 20_000)
		_, err := w.hub.output.Append(w.Context(), w.side.Conn.ID, []*commands.Log{{Task: w.task, Attempt: 1, Stream: stream, Offset: w.at[stream], Data: data}})
		require.NoError(w, err)
		w.at[stream] += int64(len(data))
	}
}

// seen is what a reader has got.
type seen struct {
	through map[string]int64 // output or marks, of each stream
	marks   []output.Dropped
}

// take checks that a line goes on where what came before of its stream ended.
func (s *seen) take(t *testing.T, l LogLine) {
	size := int64(len(l.Data))
	if l.Dropped != nil {
		require.False(t, l.Dropped.Cut, "dropped on purpose, and shown as lost")
		require.Equal(t, l.Offset, l.Dropped.From)
		size = l.Dropped.Bytes
		s.marks = append(s.marks, *l.Dropped)
	}
	require.Equal(t, s.through[l.Stream], l.Offset, l.Stream)
	s.through[l.Stream] += size
	if l.Data != nil {
		require.Equal(t, byte(l.Offset/20_000), l.Data[0])
	}
}

// Who reads more slowly than the hub drops gets each byte once, or one mark that names exactly
// what he lacks.
func TestAReaderSlowerThanWhatIsDropped(t *testing.T) {
	t.Parallel()
	w := newWriter(t)
	w.write("stderr", 1)
	w.write("stdout", 9)
	got := seen{through: map[string]int64{}}
	sent, stops := 0, map[int]bool{3: true, 8: true} // where the reader takes nothing for a while
	read := reading{hub: w.hub, task: w.task, to: Reader{Send: func(l LogLine) error {
		got.take(t, l)
		if sent++; stops[sent] {
			w.write("stdout", 30)
		}
		return nil
	}}}

	_, err := read.once(t.Context())

	require.NoError(t, err)
	require.Equal(t, w.at, got.through)
	require.Len(t, got.marks, 2, "at each stop; none of what was had of the other stream")
	w.write("stdout", 2)
	_, err = read.once(t.Context())
	require.NoError(t, err)
	require.Equal(t, w.at, got.through)
	require.Len(t, got.marks, 2, "nothing more is lacking")
	w.write("stdout", 30)
	w.write("stderr", 1)
	_, err = read.once(t.Context())
	require.NoError(t, err)
	require.Equal(t, w.at, got.through)
	require.Len(t, got.marks, 3)
}
