package policy_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// Whatever a policy file holds: it is refused, or it is understood. Then it says
// the same when it is written again, has the same version, allows nothing that it does not list, and
// never lets an agent run longer than its limit.
func FuzzPolicy(f *testing.F) {
	for _, text := range policy.Presets {
		f.Add([]byte(text))
	}
	for _, text := range []string{
		"", "version: 1", "version: 1\n---\nversion: 1\n", "version: 1\ncommands: &a [*a]\n", "version: 1\nruntimes: [exec]\ncommands: [' ', '']\n",
		"version: 1\nlimits: {timeout: 1ns, output: 9223372036854775807}\n", "{version: 1, commands: [\"*\"]}", "version: 1\n\tcommands: []\n",
		"version: !!int 1\npath: |\n  /bin\n", "version: 0x1\n", "\xef\xbb\xbfversion: 1\n", "version: 1\ncommands: [\"\\0\"]\n",
		"environment: !x\nversion: 1", "version: 1\nenv: {A: b}\nhome: /\ncommands: [{run: [a, 'b c'], env: {X: y}}, 'sh ...', 'sh * **', 'a \\*']\n",
		"version: 1\ncommands: [{run: x, path: /bin:/y}, [a, '', \"\\t\"]]\non_revoke: finish\nconnection_lease: 7d\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := policy.Parse(raw)
		if err != nil {
			return
		}

		text, err := p.Text()
		require.NoError(t, err)
		again, err := policy.Parse(text)

		require.NoError(t, err, "%s", text)
		same, err := again.Text()
		require.NoError(t, err)
		require.Equal(t, string(text), string(same))
		require.Equal(t, p.ID(), again.ID(), "%s", text)
		s := &commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"sh", "-c", "true"}}
		listed := slices.ContainsFunc(p.Commands, func(c policy.Command) bool {
			switch strings.Join(c.Run, "\n") {
			case "*", "sh\n-c\ntrue", "sh\n-c\ntrue\n**", "sh\n-c\n**", "sh\n**", "sh\n-c\n*", "sh\n*\n*", "sh\n*\ntrue", "sh\n*\n**", "sh\n*\n*\n**", "sh\n-c\n*\n**", "sh\n*\ntrue\n**":
				return true
			}
			return false
		})
		if !slices.Contains(p.Runtimes, s.Runtime) || !listed {
			require.NotNil(t, p.Judge(s, nil), "%s", text)
		}
		if limit := p.Timeout(0); limit != 0 {
			require.LessOrEqual(t, p.Timeout(1000*time.Hour), limit)
		}
	})
}
