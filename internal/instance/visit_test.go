package instance

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatSaysThatADatabaseWentAway(t *testing.T) {
	t.Parallel()

	require.True(t, away(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}))
	require.False(t, away(errors.New("relation does not exist")))
}
