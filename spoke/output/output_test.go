package output

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
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
