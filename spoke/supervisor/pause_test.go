package supervisor

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// counting is an agent of three processes that write all the time, each to a file of its own behind the name $1; one of
// them has left its session, and its parent is gone.
const counting = `
trap 'echo asked >"$1.term"; exit 0' TERM
(setsid sh -c 'while :; do echo x >>"$0.a"; sleep 0.01; done' "$1" &)
sh -c 'while :; do echo x >>"$0.b"; sleep 0.01; done' "$1" &
while :; do echo x >>"$1.c"; sleep 0.01; done
`

// counter starts an agent that counts, and returns how far it has come.
func counter(t *testing.T, noCgroup bool, change func(*Spec)) (a *Agent, dir string, far func() [3]int64) {
	file := filepath.Join(t.TempDir(), "n")
	spec := sh("")
	spec.Argv = []string{"/bin/sh", "-c", counting, "agent", file}
	spec.NoCgroup = noCgroup
	if change != nil {
		change(&spec)
	}
	a, dir = start(t, spec)
	far = func() (n [3]int64) {
		for i, name := range []string{".a", ".b", ".c"} {
			if info, err := os.Stat(file + name); err == nil {
				n[i] = info.Size()
			}
		}
		return n
	}
	goesOn(t, far)
	return a, dir, far
}

func goesOn(t *testing.T, far func() [3]int64) {
	t.Helper()
	was := far()
	eventually(t, "all of it goes on", func() bool {
		now := far()
		return now[0] > was[0] && now[1] > was[1] && now[2] > was[2]
	})
}

// stops pauses an agent. On a busy host one call may not be enough, which it says.
func stops(t *testing.T, a *Agent) {
	t.Helper()
	eventually(t, "all of it stands still", func() bool {
		require.NoError(t, a.Pause(t.Context(), true))
		return !a.Paused().Partly
	})
}

func standsStill(t *testing.T, far func() [3]int64) {
	t.Helper()
	was := far()
	time.Sleep(150 * time.Millisecond) // many times what one step takes
	require.Equal(t, was, far())
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	for name, noCgroup := range levels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, _, far := counter(t, noCgroup, nil)
			stops(t, a)
			standsStill(t, far)
			stops(t, a)
			require.NotZero(t, a.Paused().Since)
			standsStill(t, far)

			require.NoError(t, a.Pause(t.Context(), false))

			require.Zero(t, a.Paused().Since)
			require.NotZero(t, a.Paused().Stood)
			goesOn(t, far)
		})
	}
}

// A tree that stands still hears TERM all the same, and has its grace.
func TestKillOfWhatStandsStill(t *testing.T) {
	t.Parallel()
	for name, noCgroup := range levels {
		for grace, asked := range map[time.Duration]bool{5 * time.Second: true, 0: false} {
			t.Run(name+" with a grace of "+grace.String(), func(t *testing.T) {
				t.Parallel()
				a, _, _ := counter(t, noCgroup, nil)
				require.NoError(t, a.Pause(t.Context(), true))

				require.NoError(t, a.Kill(t.Context(), "the test says so", grace))

				got := ended(t, a)
				require.Equal(t, Killed, got.Outcome)
				require.Empty(t, got.Survivors)
				require.Equal(t, asked, got.Code == 0, "%+v", got)
				require.NoError(t, a.Pause(t.Context(), true), "it is over")
			})
		}
	}
}

// While it stands still no time of its limits passes: neither its timeout nor that of its silence.
func TestNoTimeCountsWhileItStandsStill(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Spec){
		"timeout": func(s *Spec) { s.Timeout = 1500 * time.Millisecond },
		"silence": func(s *Spec) { s.Limits.Idle = 1500 * time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, _, far := counter(t, false, change)
			require.NoError(t, a.Pause(t.Context(), true))
			time.Sleep(2 * time.Second)
			standsStill(t, far)
			require.NoError(t, a.Pause(t.Context(), false))
			goesOn(t, far)

			got := ended(t, a)

			if name == "timeout" {
				require.Equal(t, TimedOut, got.Outcome)
				require.Less(t, got.Breach.Measured, int64(2000))
			} else {
				require.Equal(t, Limited, got.Outcome)
			}
		})
	}
}

// What stands still is adopted as that, and goes on by the word of who adopted it.
func TestAdoptWhatStandsStill(t *testing.T) {
	t.Parallel()
	a, dir, far := counter(t, false, func(s *Spec) { s.Timeout = time.Hour })
	require.NoError(t, a.Pause(t.Context(), true))
	require.NoError(t, a.Close())

	b, exit := adopt(t, dir)

	require.Nil(t, exit)
	require.NotZero(t, b.Paused().Since)
	standsStill(t, far)
	require.NoError(t, b.Pause(t.Context(), false))
	goesOn(t, far)
	endAfter(t, b)
}
