package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// A list that no longer fits the code would show nothing.
func TestEveryBreakApplies(t *testing.T) {
	all, err := read(filepath.Join(root, list))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(all), 60)

	seen := map[string]bool{}
	for _, b := range all {
		require.NotEmpty(t, b.Name, "%+v", b)
		require.False(t, seen[b.Name], "%q is there twice", b.Name)
		seen[b.Name] = true
		text, err := b.broken(root)
		require.NoError(t, err, b.Name)
		old, err := os.ReadFile(filepath.Join(root, b.File))
		require.NoError(t, err)
		require.False(t, bytes.Equal(old, text), "%s: nothing is broken", b.Name)
		require.True(t, declares(t, b.Package, b.Test), "%s: %s has no test %s", b.Name, b.Package, b.Test)
	}
}

func declares(t *testing.T, pkg, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	require.NoError(t, err)
	for _, f := range files {
		raw, err := os.ReadFile(f)
		require.NoError(t, err)
		if strings.Contains(string(raw), "func "+test+"(t *testing.T)") {
			return true
		}
	}
	return false
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	const room = "scripts/mutants/testdata/sum/"
	for name, c := range map[string]struct {
		file, text, instead, test string
		want                      verdict
	}{
		"seen by its test":         {"sum.go", "a + b", "a - b", "TestSum", caught},
		"seen in a file it embeds": {"words.txt", "two", "three", "TestSum", caught},
		"ends in a panic":          {"sum.go", "a + b", "a + b/(b-b)", "TestSum", caught},
		"not seen":                 {"sum.go", "a + b", "b + a", "TestSum", survived},
		"seen by another test":     {"sum.go", "a + b", "a - b", "TestNothing", survived},
		"does not compile":         {"sum.go", "a + b", "a +", "TestSum", invalid},
		"the test is not there":    {"sum.go", "a + b", "a - b", "TestDifference", invalid},
		"the text is not there":    {"sum.go", "a * b", "a - b", "TestSum", invalid},
		"the text is there twice":  {"sum.go", "sum", "difference", "TestSum", invalid},
		"there is no text":         {"sum.go", "", "a - b", "TestSum", invalid},
		"there is no such file":    {"difference.go", "a + b", "a - b", "TestSum", invalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			abs, err := filepath.Abs(root)
			require.NoError(t, err)
			b := Break{Name: name, File: room + c.file, Text: c.text, Instead: c.instead, Package: "./" + room, Test: c.test}

			v, said := b.try(t.Context(), abs)

			require.Equal(t, c.want, v, said)
		})
	}
}

// A test that fails with nothing broken would be taken for one that catches.
func TestATestMustPassUnbroken(t *testing.T) {
	t.Parallel()
	abs, err := filepath.Abs(root)
	require.NoError(t, err)
	const pkg = "./scripts/mutants/testdata/sum"
	require.NoError(t, unbroken(t.Context(), abs, []Break{{Package: pkg, Test: "TestSum"}, {Package: pkg, Test: "TestNothing"}}))

	err = unbroken(t.Context(), abs, []Break{{Package: pkg, Test: "TestSum"}, {Package: pkg, Test: "TestWrong"}})

	require.ErrorContains(t, err, pkg+", with nothing broken: TestWrong\n")
}
