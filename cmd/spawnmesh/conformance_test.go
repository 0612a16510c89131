package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/conformance"
)

// conform runs the conformance runner and returns its verdicts and its exit code.
func conform(t *testing.T, args ...string) (list []conformance.Verdict, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, append([]string{"conformance", "--spoke", "-o", "json"}, args...)...)
	cmd.Env = append(os.Environ(), "SPAWNMESH="+program, "DATABASE_URL=")
	cmd.Stderr = os.Stderr
	raw, err := cmd.Output()
	if err != nil {
		require.IsType(t, &exec.ExitError{}, err)
	}
	if code = cmd.ProcessState.ExitCode(); code < exitMisuse {
		require.NoError(t, json.Unmarshal(raw, &list), "%s", raw)
	}
	return list, code
}

// keepsAll fails unless every rule there is is kept.
func keepsAll(t *testing.T, list []conformance.Verdict, code int) {
	t.Helper()
	keepsEach(t, list, code)
	require.Len(t, list, len(conformance.Rules()))
}

// keepsEach fails for every rule of list that is not kept.
func keepsEach(t *testing.T, list []conformance.Verdict, code int) {
	t.Helper()
	for _, v := range list {
		if v.Verdict != conformance.Kept {
			t.Errorf("%s (section %s) is %s: %s", v.Rule, v.Section, v.Verdict, v.Why)
		}
	}
	require.Zero(t, code)
}

// This program's own spoke keeps every rule of the page that others write theirs from.
func TestOurSpokeKeepsTheProtocol(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs("../../docs/examples/spoke.sh")
	require.NoError(t, err)

	list, code := conform(t, "--patience", "1m", "--", script) // of a busy machine

	keepsAll(t, list, code)
}

// What is no spoke keeps nothing, and the runner says so and ends.
func TestConformanceOfNoSpoke(t *testing.T) {
	t.Parallel()
	for name, argv := range map[string][]string{
		"it ends at once":   {"false"},
		"it does not join":  {"sleep", "60"},
		"it does not exist": {"/no/such/spoke"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			list, code := conform(t, append([]string{"--patience", "1s", "--rule", "spawn", "--"}, argv...)...)

			require.Equal(t, exitUnexpected, code)
			require.Len(t, list, 2)
			require.Equal(t, conformance.Broken, list[0].Verdict)
			require.NotEmpty(t, list[0].Why)
			require.Equal(t, conformance.NotTried, list[1].Verdict)
		})
	}
}

func TestConformanceMisused(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"no program":     {},
		"no such rule":   {"--rule", "courtesy", "--", "true"},
		"hardly a while": {"--patience", "1ms", "--", "true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, code := conform(t, args...)

			require.Equal(t, exitMisuse, code)
		})
	}
}
