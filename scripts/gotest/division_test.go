package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// testsHere returns the directories of the packages that have a test of a name, for all names.
func testsHere(t *testing.T) map[string][]string {
	t.Helper()
	root, found := filepath.Join("..", ".."), map[string][]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && f.Name.Name != "TestMain" {
				found[f.Name.Name] = append(found[f.Name.Name], filepath.ToSlash(dir))
			}
		}
		return err
	}))
	return found
}

// The patterns know no packages: a test of the same name in another one would be left out as well, and be run by nobody.
func TestTheListNamesTestsThatAreThere(t *testing.T) {
	t.Parallel()
	all, err := read(list)
	require.NoError(t, err)
	require.NotEmpty(t, all)
	listed, last := map[string][]string{}, ""
	for _, l := range all {
		listed[l.name] = append(listed[l.name], l.pkg)
		require.LessOrEqual(t, last, l.pkg+" "+l.name, "the list is in order")
		last = l.pkg + " " + l.name
	}
	here := testsHere(t)
	for name, packages := range listed {
		require.ElementsMatch(t, here[name], packages, "the packages that have %s", name)
	}
}

// What a row of the coverage promises is tried by make test as well, if not in every way, or it says that it is not.
func TestEveryPromiseHasAQuickTest(t *testing.T) {
	t.Parallel()
	all, err := read(list)
	require.NoError(t, err)
	only := map[string]bool{}
	for _, l := range all {
		only[l.name] = !l.larger
	}
	coverage, err := os.ReadFile("../../docs/coverage.md")
	require.NoError(t, err)
	rows := 0
	for row := range strings.Lines(string(coverage)) {
		tests := regexp.MustCompile("`(Test[A-Z][A-Za-z0-9]*)`").FindAllStringSubmatch(row, -1)
		if !strings.HasPrefix(row, "|") || len(tests) == 0 {
			continue
		}
		rows++
		if strings.Contains(row, "`make test-long`") {
			continue
		}
		require.True(t, slices.ContainsFunc(tests, func(name []string) bool { return !only[name[1]] }), "make test tries nothing of this: %s", row)
	}
	require.Greater(t, rows, 100)
}

func TestEveryTestIsInOneHalf(t *testing.T) {
	t.Parallel()
	all, err := read("# tests\na TestA\n\nb TestB larger # and here\n")
	require.NoError(t, err)
	require.Equal(t, []long{{"a", "TestA", false}, {"b", "TestB", true}}, all)
	require.Equal(t, "^(TestA|TestB)$", pattern(all))
	for _, bad := range []string{"TestA", "a TestA smaller"} {
		_, err = read(bad)
		require.ErrorContains(t, err, bad)
	}

	quick, err := divide([]string{"-quick", "-race", "./..."})
	require.NoError(t, err)
	run, err := divide([]string{"-long", "-race"})
	require.NoError(t, err)
	same, err := divide([]string{"-race", "./..."})
	require.NoError(t, err)

	require.Equal(t, []string{"-race", "./..."}, same)
	require.Equal(t, []string{"-skip", "-race", "./..."}, []string{quick[0], quick[2], quick[3]})
	require.Equal(t, []string{"-run", "-race"}, []string{run[0], run[2]})
	here, err := read(list)
	require.NoError(t, err)
	for _, l := range here {
		require.Contains(t, run, "./"+l.pkg)
		require.Regexp(t, run[1], l.name)
		if l.larger {
			require.NotRegexp(t, quick[1], l.name)
		} else {
			require.Regexp(t, quick[1], l.name)
		}
	}
}
