package spoke

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// at is so many seconds after the start of a host, which has slept so many of them.
func at(second, slept time.Duration) moment {
	return moment{supervisor.Instant(1000*time.Second + second*time.Second), slept * time.Second}
}

// The newest sign counts, in whichever order they are noted, and time that the host slept is not idle time.
func TestTheNewestSignCounts(t *testing.T) {
	t.Parallel()
	var g signs
	sign, idle, slept := g.last(at(5, 0))
	require.Equal(t, commands.Sign(""), sign, "nothing was seen")
	require.Zero(t, idle+slept)

	g.note(commands.SignStart, at(0, 0))
	g.note(commands.SignOutput, at(20, 0))
	g.note(commands.SignProgress, at(10, 0))

	sign, idle, slept = g.last(at(3635, 3600))
	require.Equal(t, commands.SignOutput, sign)
	require.Equal(t, 15*time.Second, idle)
	require.Equal(t, time.Hour, slept)

	g.note(commands.SignHeartbeat, at(3640, 3600))
	sign, idle, slept = g.last(at(3641, 3600))
	require.Equal(t, commands.SignHeartbeat, sign)
	require.Equal(t, time.Second, idle)
	require.Zero(t, slept)
}

// A hundredth of a processor is a sign; a process that only wakes up now and then is none, however often somebody looks.
func TestProcessorTimeIsASign(t *testing.T) {
	t.Parallel()
	var g signs
	g.note(commands.SignStart, at(0, 0))
	g.used(5*time.Second, at(1, 0)) // what it used before is not known
	g.used(5*time.Second+50*time.Millisecond, at(11, 0))
	sign, _, _ := g.last(at(11, 0))
	require.Equal(t, commands.SignStart, sign)

	g.used(5*time.Second+250*time.Millisecond, at(21, 0))
	sign, idle, _ := g.last(at(21, 0))
	require.Equal(t, commands.SignCPU, sign)
	require.Zero(t, idle)

	for i := range 50 { // looks at short intervals
		g.used(5*time.Second+260*time.Millisecond, moment{at(21, 0).at.Add(time.Duration(i) * 10 * time.Millisecond), 0})
	}
	_, idle, _ = g.last(at(22, 0))
	require.Equal(t, time.Second, idle)
}
