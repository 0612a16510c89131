package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/fleet"
)

// An agent whose host is gone is running as far as its hub knows. What the hub
// says of it names the time of that knowledge, and what to do.
func TestAnAgentOfAHostThatIsGone(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	h, s := hand{t: t, dir: m.Hub.Dir}, hand{t: t, dir: m.Spokes["attic"].Dir}
	g := newGate(t)
	id := h.spawn("--spoke", "attic", "--", "sh", "-c", g.wait())
	h.runs(id)
	require.Equal(t, "it is running\n", h.do("why", id))
	require.NotContains(t, s.run("", "status", id).err, "no spoke runs here")

	m.Spokes["attic"].Kill()

	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for the hub to miss attic", func() (bool, error) {
		return strings.Contains(h.do("why", id), "as attic last said: the link is down ("), nil
	}))
	require.Contains(t, h.do("why", id), " connections revoke attic --reason WHY")
	require.Contains(t, h.run("", "status", id).err, "it is running, as attic last said")
	require.Contains(t, s.run("", "status", id).err, "no spoke runs here")
}

// A person reads when something happened, and when the hub heard of it if that was
// later.
func TestWhenItHappened(t *testing.T) {
	t.Parallel()
	ordered := time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)
	told := ordered.Add(2 * time.Minute)
	for name, test := range map[string]struct {
		at   time.Time
		told *time.Time
		want string
	}{
		"it did not":            {time.Time{}, nil, ""},
		"only the hub's time":   {time.Time{}, &told, "2026-03-01 12:02:00.000  +2m0s"},
		"told at once":          {told.Add(-time.Second), &told, "2026-03-01 12:01:59.000  +1m59s"},
		"told after an outage":  {ordered.Add(5 * time.Second), &told, "2026-03-01 12:00:05.000 by its spoke's clock, told 2026-03-01 12:02:00.000  +2m0s"},
		"a clock an hour ahead": {told.Add(time.Hour), &told, "2026-03-01 13:02:00.000 by its spoke's clock, told 2026-03-01 12:02:00.000  +2m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var at int64
			if !test.at.IsZero() {
				at = test.at.UnixMilli()
			}

			require.Equal(t, test.want, happened(at, test.told, &ordered))
		})
	}
}
