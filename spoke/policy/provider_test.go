package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

const provided = `version: 1
runtimes: [exec]
commands:
  - {run: "claude **", account: claude-max, limit_patterns: ["usage limit (reached|exceeded)", "^quota"]}
  - echo **
`

// An entry says whose limits its agents meet, and by which words they say so.
func TestProviders(t *testing.T) {
	t.Parallel()
	p, err := policy.Parse([]byte(provided))
	require.NoError(t, err)

	account := func(argv ...string) string {
		n := p.OpenNamed(&commands.Spawn{Runtime: commands.RuntimeExec, Argv: argv})
		defer n.Close()
		return n.Account()
	}
	met := func(program string, output ...string) bool {
		is, err := p.MetLimit([]string{program}, "", output...)
		require.NoError(t, err)
		return is
	}
	require.Equal(t, "claude-max", account("claude", "-p", "hello"))
	require.Empty(t, account("echo", "x"))
	require.Empty(t, account("rm"), "it is not allowed")
	require.True(t, met("claude", "all is well", "sorry: usage limit exceeded"))
	require.False(t, met("claude", "a quota", ""))
	require.False(t, met("echo", "usage limit reached"))

	text, err := p.Text()
	require.NoError(t, err)
	again, err := policy.Parse(text)
	require.NoError(t, err)
	require.Equal(t, p.ID(), again.ID())
	other, err := policy.Parse([]byte(strings.Replace(provided, "claude-max", "claude", 1)))
	require.NoError(t, err)
	require.NotEqual(t, p.ID(), other.ID(), "it says something else")
}

func TestBadProviders(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ entry, says string }{
		"an account in capitals":  {"account: Claude", `[3:23] account "Claude" is not 1 to 63 lower-case letters, digits and hyphens`},
		"an account with a space": {"account: my account", "is not 1 to 63 lower-case letters"},
		"no regular expression":   {`limit_patterns: ["("]`, "[3:30] limit_patterns: error parsing regexp: missing closing ): `(`; write a regular expression of RE2"},
		"an empty pattern":        {`limit_patterns: [""]`, "limit_patterns has an entry of 0 bytes; write 1 to 500"},
		"a long pattern":          {fmt.Sprintf("limit_patterns: [%s]", strings.Repeat("x", 501)), "limit_patterns has an entry of 501 bytes"},
		"many patterns":           {"limit_patterns: [" + strings.Repeat("x,", 33) + "]", "limit_patterns has 33 entries; write at most 32"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, err := policy.Parse([]byte("version: 1\ncommands:\n  - {run: x, " + tt.entry + "}\n"))

			require.ErrorContains(t, err, tt.says)
		})
	}
}
