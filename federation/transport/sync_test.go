package transport

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What was acknowledged is on disk: the servers of both sides sync each write.
func TestTheMessageStoreSyncs(t *testing.T) {
	t.Parallel()
	options, err := serverOptions("lab", t.TempDir())
	require.NoError(t, err)
	require.True(t, options.SyncAlways)

	h := startHub(t, nil)

	require.True(t, h.gate.server().JetStreamConfig().SyncAlways)
}
