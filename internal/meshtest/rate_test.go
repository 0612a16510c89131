package meshtest

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/node"
	"github.com/spawnmesh/spawnmesh/spoke"
)

// What a peer sends above its rate waits on its side. Both sides say so, the log once,
// and no other peer waits for it.
func TestAPeerAboveItsRateIsHeldToIt(t *testing.T) {
	t.Parallel()
	const rate, burst, size = 64 << 10, 4<<20 + 256<<10, 12 << 20 // bytes; the burst has room for a batch, the rest takes two minutes
	m := Plan{Rate: node.Rate{Bytes: rate}}.Start(t, "attic", "barn")
	s, began := m.Spokes["attic"], m.Hub.Count(t, `SELECT floor(extract(epoch FROM clock_timestamp()))::int`)
	taken := func() (bytes int) {
		bytes = m.Hub.Count(t, `SELECT coalesce(sum(through), 0)::int FROM log_streams`)
		seconds := m.Hub.Count(t, `SELECT ceil(extract(epoch FROM clock_timestamp()))::int`) - began
		require.LessOrEqual(t, bytes, burst+rate*seconds, "after %d s by the clock of the database", seconds)
		return bytes
	}
	says := func() commands.ConnectionView {
		var hubs control.Items[spoke.HubView]
		s.Do(t, "GET", "/api/v1/connections", nil, &hubs)
		require.Len(t, hubs.Items, 1)
		return hubs.Items[0].Says
	}
	require.False(t, m.View(t, "attic").Limited)
	require.False(t, says().Limited)

	m.Spawn(t, "attic", "head", "-c", strconv.Itoa(size), "/dev/zero")

	Await(t, "the hub to see who is above its rate", func() bool { taken(); return m.View(t, "attic").Limited })
	Await(t, "the spoke to be told", func() bool { taken(); return says().Limited })
	require.Equal(t, commands.Completed, m.Wait(t, m.Noop(t, "barn")).State)
	require.Less(t, taken(), size, "the other peer did not wait for it")
	require.False(t, m.View(t, "barn").Limited)
	require.Equal(t, 1, strings.Count(m.Hub.Log.String(), "the peer sends more than it may"))
}
