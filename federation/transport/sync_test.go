package transport

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What the message server has acknowledged is on disk.
func TestTheMessageStoreSyncs(t *testing.T) {
	t.Parallel()

	h := startHub(t, nil)

	require.True(t, h.gate.server().JetStreamConfig().SyncAlways)
}
