package hub_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
)

// The log of a hub says once when the link of a spoke comes, once when it goes, and once
// that it is back and how long it was away. So does that of the spoke.
func TestTheLogSaysWhenALinkComesAndGoes(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	said := func(what string) int { return strings.Count(m.Hub.Log.String(), what) }
	meshtest.Await(t, "the line of the link", func() bool { return said(`msg="linked to a spoke" connection=attic`) == 1 })

	cut := time.Now()
	m.Spokes["attic"].Proxy.Cut()

	meshtest.Await(t, "the line of its end", func() bool { return said(`msg="not linked to a spoke any more" connection=attic`) == 1 })
	require.NotContains(t, m.Hub.Log.String(), "away_ms", "it was never away before")
	var at struct{ Reasons []commands.WhyReason }
	m.Hub.Do(t, "GET", "/api/v1/connections/attic", nil, &at)
	require.Len(t, at.Reasons, 1)
	require.Equal(t, []any{commands.CauseLink, "is not linked"}, []any{at.Reasons[0].Code, at.Reasons[0].Text})
	require.False(t, at.Reasons[0].Since.Before(cut.Truncate(time.Millisecond)), "since the end of the link, not since its last heartbeat")
	time.Sleep(200 * time.Millisecond) // is what it is away for at least

	m.Spokes["attic"].Proxy.Heal()

	back := regexp.MustCompile(`msg="linked to (a spoke|the hub)" connection=\w+ address=\S+ (?:since=\S+ )?away_ms=(\d+)`)
	for role, i := range map[string]*meshtest.Instance{"a spoke": m.Hub.Instance, "the hub": m.Spokes["attic"].Instance} {
		meshtest.Await(t, "the line of the link to "+role+" that is back", func() bool { return back.MatchString(i.Log.String()) })
		found := back.FindAllStringSubmatch(i.Log.String(), -1)
		require.Len(t, found, 1)
		require.Equal(t, role, found[0][1])
		away, err := strconv.Atoi(found[0][2])
		require.NoError(t, err)
		require.GreaterOrEqual(t, away, 150)
		require.Less(t, time.Duration(away)*time.Millisecond, meshtest.Patience)
	}
}
