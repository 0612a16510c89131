package commands

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestErrorOf(t *testing.T) {
	t.Parallel()
	breach := &Breach{Limit: DiskLimit, Unit: "bytes", Allowed: 1, Measured: 2}
	for name, tt := range map[string]struct {
		outcome Outcome
		why     Reason
		exit    Exit
		said    *Report
		code    string // "" = no error
		text    string
	}{
		"completed":            {outcome: Succeeded},
		"killed":               {outcome: AttemptKilled, exit: Exit{Code: -1, Signal: "SIGKILL"}},
		"parked":               {outcome: Parked, exit: Exit{Code: 75}},
		"given back":           {outcome: Released, exit: Exit{Code: -1}},
		"failed":               {outcome: AttemptFailed, exit: Exit{Code: 3}, code: "failed", text: "exit code 3"},
		"as it says":           {outcome: AttemptFailed, exit: Exit{Code: 3}, said: &Report{As: SaidFailed, Text: "no key"}, code: "failed", text: "no key"},
		"not as it says":       {outcome: AttemptFailed, exit: Exit{Code: 3}, said: &Report{As: SaidDone, Text: "all is well"}, code: "failed", text: "exit code 3"},
		"the last of retries":  {outcome: AttemptFailed, why: RetriesExhausted, exit: Exit{Code: 3}, code: "failed", text: "exit code 3"},
		"a limit":              {outcome: AttemptFailed, exit: Exit{Code: -1, Breach: breach}, code: string(DiskLimit), text: breach.Sentence()},
		"lost":                 {outcome: Interrupted, exit: Exit{Code: -1, Error: "the shim was killed"}, code: "executor_died", text: "the shim was killed"},
		"out of time":          {outcome: TimedOut, exit: Exit{Code: -1}, code: "deadline_elapsed"},
		"never to be started":  {outcome: CouldNotStart, exit: Exit{Code: -1, Error: "no such file"}, code: "unavailable", text: "no such file"},
		"not to be started":    {outcome: Released, exit: Exit{Code: -1, Error: "no memory"}, code: "released", text: "no memory"},
		"by a reason of hosts": {outcome: CouldNotStart, why: PolicyDenied, exit: Exit{Code: -1, Error: "x"}, code: "policy_denied", text: "x"},
		"long":                 {outcome: CouldNotStart, exit: Exit{Code: -1, Error: strings.Repeat("x", 1000)}, code: "unavailable", text: strings.Repeat("x", MaxError)},
	} {
		var want *LastError
		if tt.code != "" {
			want = &LastError{Code: tt.code, Text: tt.text, Attempt: 7}
		}
		require.Equal(t, want, ErrorOf(7, tt.outcome, tt.why, tt.exit, tt.said), name)
	}
}
