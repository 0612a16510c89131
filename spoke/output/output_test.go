package output

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// The directories of tasks whose output is unsent are kept, so what nobody will ever
// take is not called unsent.
func TestAnEndedConnectionHasNothingUnsent(t *testing.T) {
	t.Parallel()
	s := New(backlog.Open(storetest.NewSide(t, 1, 2).DB, nil))
	s.Dir = func(backlog.Fence) string { return t.TempDir() }
	s.serve, s.loaded = func(*feed) {}, true
	ended, lives := storetest.NewID(), storetest.NewID()
	for task, conn := range map[string]string{"a": ended, "b": ended, "c": lives} {
		s.add([]backlog.Output{{Conn: conn, Fence: backlog.Fence{Task: task, Attempt: 1}}})
	}

	require.NoError(t, s.Forget(t.Context(), ended))

	unsent, known := s.Unsent()
	require.True(t, known)
	require.Equal(t, map[string]bool{"c": true}, unsent)
}

// A hub that does not confirm what it was sent gets it again after 10 seconds, as
// docs/protocol.md says; until then it takes its part of the window.
func TestWhatIsNotConfirmedGoesAgain(t *testing.T) {
	t.Parallel()
	sent := time.Now()
	src := source{Output: backlog.Output{Streams: [2]backlog.Sent{{Through: 20}}}}
	src.streams[0] = stream{sent: 100, ended: true, since: sent, sure: true}

	require.EqualValues(t, cost+80, src.underWay(sent.Add(10*time.Second)))
	require.Zero(t, src.underWay(sent.Add(10*time.Second+1)))

	require.Equal(t, stream{sent: 20}, src.streams[0])
}

// What cannot be read now, by a fault of this host, is not taken for nothing, and holds up no end: it is remembered, and who sends it waits for it.
// Other tests need files: none of them runs beside this one.
func TestWhatCannotBeReadIsNotNothing(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, string(supervisor.Stdout)), []byte("said"), 0o600))
	s := &Sender{Dir: func(backlog.Fence) string { return dir }, Cap: func() int64 { return 1 << 20 }}
	var was unix.Rlimit
	require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &was))
	require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Max: was.Max}, nil))

	wrote := s.wrote(backlog.Fence{})

	require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, &was, nil))
	require.True(t, wrote)
}
