package layout

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// onMap is what the map of docs/architecture.md names. A line of it is paths and, behind two spaces, what they are; a
// name without a directory is beside the first of its line.
func onMap(t *testing.T) (names []string) {
	t.Helper()
	raw, err := os.ReadFile("../../docs/architecture.md")
	require.NoError(t, err)
	_, text, found := strings.Cut(string(raw), "```\n")
	require.True(t, found)
	text, _, _ = strings.Cut(text, "```\n")
	for line := range strings.Lines(text) {
		paths, about, found := strings.Cut(line, "  ")
		require.True(t, found && strings.TrimSpace(about) != "", "it is not said what this is: %s", line)
		list := strings.Split(paths, ", ")
		for _, name := range list[1:] {
			names = append(names, path.Join(path.Dir(list[0]), name))
		}
		names = append(names, list[0])
	}
	return names
}

// The map is of all packages and of the modules of their own, and of nothing else.
func TestEveryPackageIsOnTheMap(t *testing.T) {
	var there []string
	for _, p := range list(t) {
		there = append(there, strings.TrimPrefix(p.ImportPath, module))
	}
	for _, depth := range []string{"*", "*/*", "*/*/*"} {
		modules, err := filepath.Glob("../../" + depth + "/go.mod")
		require.NoError(t, err)
		for _, at := range modules {
			there = append(there, strings.TrimPrefix(path.Dir(at), "../../"))
		}
	}
	slices.Sort(there)

	named := onMap(t)

	slices.Sort(named)
	require.Equal(t, there, named)
}

// A package without tests says who tests it, and that one has tests.
func TestWhatHasNoTestsSaysWhoTestsIt(t *testing.T) {
	tested := regexp.MustCompile(`(?m)^// Its tests are those of ([a-z/]+)[ .,:]`)
	for _, p := range list(t) {
		room := strings.TrimPrefix(p.ImportPath, module)
		if own, err := filepath.Glob(filepath.Join("../..", room, "*_test.go")); err != nil || len(own) > 0 {
			continue
		}
		comment := ""
		for _, name := range p.GoFiles {
			text, err := os.ReadFile(filepath.Join("../..", room, name))
			require.NoError(t, err)
			before, _, _ := strings.Cut(string(text), "\npackage ")
			comment += before
		}
		if strings.Contains(comment, "\n// No test runs it:") {
			continue
		}
		by := tested.FindStringSubmatch(comment)
		require.NotNil(t, by, "the package comment of %s does not say who tests it", room)
		others, err := filepath.Glob(filepath.Join("../..", by[1], "*_test.go"))
		require.NoError(t, err)
		require.NotEmpty(t, others, "%s says that it is tested by %s, which has no tests", room, by[1])
	}
}
