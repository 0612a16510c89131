package spoke

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// What an agent says of its progress counts in the order in which it said it: a clock that was set back in between does not hold it
// up, and what is noted late takes nothing back.
func TestTheNewestProgressCountsWhateverTheClock(t *testing.T) {
	t.Parallel()
	l := newLive(func() {})
	r := &run{fence: backlog.Fence{Task: "a", Attempt: 1}}
	l.byTask["a"] = r
	began := time.Now()
	say := func(n int, at time.Duration, text string) {
		l.progressed(r, backlog.Step{Progress: commands.Progress{Step: text}, Attempt: 1, N: n, At: began.Add(at)})
	}

	say(6, time.Hour, "s6")
	say(7, 0, "s7")
	say(5, 2*time.Hour, "s5")

	require.Equal(t, "s7", l.saidOf("a").Step)
}
