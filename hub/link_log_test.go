package hub_test

import (
	"strings"
	"testing"

	"github.com/spawnmesh/spawnmesh/internal/meshtest"
)

// The log of a hub says once when the link of a spoke comes, and once when it goes.
func TestTheLogSaysWhenALinkComesAndGoes(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	said := func(what string) int { return strings.Count(m.Hub.Log.String(), what) }
	meshtest.Await(t, "the line of the link", func() bool { return said(`msg="linked to a spoke" connection=attic`) == 1 })

	m.Spokes["attic"].Proxy.Cut()

	meshtest.Await(t, "the line of its end", func() bool { return said(`msg="not linked to a spoke any more" connection=attic`) == 1 })
}
