package backlog_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// A workspace has a name that no other one is mistaken for, and that needs no quoting anywhere.
func TestNamesThatNoWorkspaceHas(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nothing": "", "64 letters": strings.Repeat("a", 64), "a path upwards": "..", "a path": "a/b", "a twin in capitals": "Main", "a twin of other letters": "mаin",
		"a twin of a joined letter": "ﬁn", "a twin with a mark": "mai\u0301n", "a line break": "main\n", "a blank": "ma in", "a NUL": "main\x00", "no UTF-8": "\xff",
		"a hyphen in front": "-main", "a dot": "main.", "every workspace": "*", "SQL": "'; DROP TABLE tasks; --", "10 KiB": strings.Repeat("a", 10<<10),
	} {
		err := backlog.CheckWorkspace(text)
		require.Equal(t, commands.Validation, commands.CodeOf(err), name)
		require.ErrorContains(t, err, "is not 1 to 63 lower-case letters, digits and hyphens", name)
		require.NotContains(t, err.Error(), "\n", name)
		require.Less(t, len(err.Error()), 1000, name)
	}
	for _, text := range []string{"a", "main", "0", "a-", strings.Repeat("a", 63)} {
		require.NoError(t, backlog.CheckWorkspace(text), text)
	}
}
