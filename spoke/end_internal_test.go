package spoke

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// What is cancelled has completed only where it ended by itself, and well; what is killed never has.
func TestWhatEndsWellWhileItIsCancelled(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		outcome commands.Outcome
		exit    commands.Exit
		well    bool
	}{
		"by itself":               {commands.Succeeded, commands.Exit{}, true},
		"by itself, when asked":   {commands.AttemptKilled, commands.Exit{}, true},
		"badly":                   {commands.AttemptKilled, commands.Exit{Code: 1}, false},
		"by a signal":             {commands.AttemptKilled, commands.Exit{Signal: "SIGKILL"}, false},
		"by its deadline":         {commands.TimedOut, commands.Exit{}, false},
		"at a limit, with code 0": {commands.AttemptFailed, commands.Exit{}, false},
	} {
		e := backlog.End{Outcome: tt.outcome, Exit: tt.exit}
		require.Equal(t, tt.well, outcomeUnder(backlog.KillRun{Cancel: true}, e) == commands.Succeeded, name)
		require.Equal(t, commands.AttemptKilled, outcomeUnder(backlog.KillRun{}, e), name)
	}
}

// The longest that can be seen of an attempt is told. What no message has room for is not: it would
// stop all ends that are recorded at its moment, and be tried again for ever.
func TestAnEndThatIsTooLargeIsNotTold(t *testing.T) {
	t.Parallel()
	control := func(n int) string { return strings.Repeat("\x01", n) }
	f := backlog.Fence{Task: "01980000-0000-7000-8000-000000000000", Attempt: 1}
	out := commands.Output{Tail: control(commands.MaxTail), SHA256: strings.Repeat("0", 64),
		Gaps: slices.Repeat([]commands.Gap{{From: 1 << 52, To: 1 << 52, At: 1 << 52}}, commands.MaxGaps/2)}
	e := backlog.End{Fence: f, Outcome: commands.AttemptFailed, Stdout: out, Stderr: out,
		Exit:   commands.Exit{Code: -1, Signal: "SIGKILL", Error: control(1000), Limits: control(1000)},
		Reaped: slices.Repeat([]commands.Process{{Pid: 1 << 22, Command: control(64)}}, attempt.MaxReaped)}
	require.NoError(t, checkEnd(f, e))
	e.Word = &commands.Word{Report: commands.Report{As: commands.SaidDone, Text: "all of it"}, Data: `"` + strings.Repeat("x", 60<<10) + `"`}
	e.Word.Final = true
	require.Equal(t, &commands.Word{Report: commands.Report{As: commands.SaidDone, Text: "all of it", Cut: true, Final: true}}, cutWord(f, e), "the result says that there was more")
	e.Word.Data = `"x"`
	require.Same(t, e.Word, cutWord(f, e))
	e.Word = nil
	e.Survivors = e.Reaped

	err := checkEnd(f, e)

	require.Equal(t, commands.Validation, commands.CodeOf(err))
	require.ErrorContains(t, err, "limit 184320")
}
