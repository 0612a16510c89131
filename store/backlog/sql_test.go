package backlog

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// namesIn returns what a pattern's group finds in the files of a glob.
func namesIn(t *testing.T, glob, pattern string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(glob)
	require.NoError(t, err)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
	}
	return names
}

// A statement that nobody uses is gone; one that is used is there, whole.
func TestEveryStatementIsThereAndUsed(t *testing.T) {
	t.Parallel()
	used := slices.Concat(namesIn(t, "*.go", `statement\("(\w+)"\)`), namesIn(t, "list.go", `return "(list_\w+)"`), namesIn(t, "sql/*.sql", `-- include: (\w+)`))
	slices.Sort(used)

	there := namesIn(t, "sql/*.sql", `-- name: (\w+)`)

	require.ElementsMatch(t, slices.Compact(used), there)
	for name, text := range statements() {
		require.NotEmpty(t, strings.TrimSpace(text), name)
		require.NotContains(t, text, "--", "%s has a comment inside, or includes nothing", name)
	}
}
