package commands_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

// verdicts of an agent by its state: with the link down, and with it up for each sign that there can be.
var verdicts = map[commands.State]struct {
	cut, silent, fresh, slept, old commands.VerdictWord
}{
	commands.Running:       {commands.CutOff, commands.Working, commands.Working, commands.Asleep, commands.Hung},
	commands.AwaitingInput: {commands.CutOff, commands.Waiting, commands.Waiting, commands.Waiting, commands.Waiting},
	commands.Paused:        {commands.CutOff, commands.Asleep, commands.Asleep, commands.Asleep, commands.Asleep},
}

// Every combination of what is known of an agent has exactly one verdict, with its evidence; what has not begun or has
// ended has none.
func TestEveryEvidenceHasOneVerdict(t *testing.T) {
	t.Parallel()
	signs := []commands.Sign{commands.SignStart, commands.SignOutput, commands.SignCPU, commands.SignProgress, commands.SignHeartbeat}
	for _, state := range commands.States {
		for _, reason := range append(slices.Clone(commands.Reasons), commands.NoReason) {
			want, begun := verdicts[state]
			if state == commands.Queued && reason == commands.Limit {
				l := commands.Limited
				want, begun = struct{ cut, silent, fresh, slept, old commands.VerdictWord }{commands.CutOff, l, l, l, l}, true
			}
			check := func(word commands.VerdictWord, e commands.Evidence) {
				e.State, e.Reason = state, reason
				v := e.Verdict()
				if !begun {
					require.Nil(t, v, "%+v", e)
					return
				}
				require.NotNil(t, v, "%+v", e)
				require.Equal(t, word, v.Word, "%+v", e)
				require.NotEmpty(t, v.Evidence)
				require.Contains(t, commands.VerdictWords, v.Word)
			}
			check(want.silent, commands.Evidence{})
			for _, sign := range signs {
				for _, idle := range []time.Duration{0, 5 * time.Second, commands.HungAfter - 1, commands.HungAfter, 100 * time.Hour} {
					for _, slept := range []time.Duration{0, time.Hour} {
						word := want.fresh
						switch {
						case idle >= commands.HungAfter:
							word = want.old
						case slept > 0:
							word = want.slept
						}
						e := commands.Evidence{Sign: sign, Idle: idle, Slept: slept}
						check(word, e)
						e.Unheard = "the link is down"
						check(want.cut, e)
					}
				}
			}
		}
	}
}

// The evidence says what was seen last, and when; how long is long enough is whoever's who asks.
func TestTheEvidenceOfAVerdict(t *testing.T) {
	t.Parallel()
	says := map[string]commands.Evidence{
		"it wrote output 5s ago": {Idle: 5 * time.Second},
		"it wrote output 1s ago": {},
		"no output, progress, heartbeat or processor time since it wrote output 11m ago": {Idle: 11 * time.Minute},
		"no output, progress, heartbeat or processor time since it wrote output 2s ago":  {Idle: 2 * time.Second, Patience: time.Second},
		"it wrote output 1m ago, and its host slept 1h since":                            {Idle: time.Minute, Slept: time.Hour},
	}
	for want, e := range says {
		e.State, e.Sign = commands.Running, commands.SignOutput
		require.Equal(t, want, e.Verdict().Evidence)
	}
}
