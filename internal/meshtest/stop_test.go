package meshtest

import (
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Who starts a hub again when it says that it has stopped finds its address free. That a
// spoke ends its own link is no warning.
func TestAHubThatHasStoppedListensNoMore(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	var ends []error
	m.Hub.Log.watch(func(line string) {
		if !strings.Contains(line, "hub has stopped") {
			return
		}
		l, err := net.Listen("tcp", m.Hub.Link)
		if err == nil {
			err = l.Close()
		}
		ends = append(ends, err)
	})

	m.Stop(t, "attic")
	m.Stop(t, "hub")

	require.Equal(t, []error{nil}, ends)
	require.Contains(t, m.Spokes["attic"].Log.String(), `msg="link to the hub ended" connection=lab`)
	require.NotContains(t, m.Spokes["attic"].Log.String(), "not linked to the hub")
}
