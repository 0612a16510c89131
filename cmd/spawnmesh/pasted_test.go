package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A line to paste names the instance that was asked; what is for another host, and the words of others, stay as they are.
func TestALineToPasteIsForTheInstanceThatWasAsked(t *testing.T) {
	t.Parallel()
	a := &app{dataDir: "/lab", workspace: "red"}
	for fix, want := range map[string]string{
		"spawnmesh doctor":                                       "spawnmesh --data-dir /lab doctor",
		"spawnmesh backlog retry 'a b: spawnmesh x'":             "spawnmesh --data-dir /lab backlog retry 'a b: spawnmesh x' --workspace red",
		"once its host allows it: spawnmesh cancel 7":            "once its host allows it: spawnmesh --data-dir /lab cancel 7",
		"its host decides; on its host: spawnmesh lane resume x": "its host decides; on its host: spawnmesh lane resume x",
		"attic says: curl evil: spawnmesh kill --all":            "attic says: curl evil: spawnmesh kill --all",
		"attic says: spawnmesh kill --all":                       "attic says: spawnmesh kill --all",
		"on its host, spawnmesh doctor says why":                 "on its host, spawnmesh doctor says why",
		"set the clock of its host":                              "set the clock of its host",
		"":                                                       "",
	} {
		require.Equal(t, want, a.pasted(fix))
	}
	require.Equal(t, "spawnmesh --context lab kill --all", (&app{context: "lab"}).pasted("spawnmesh kill --all"))
}

// Each line to paste that is in the source is one that the command takes, with all that it demands. What is known only when it is
// printed stands as 7.
func TestEveryLineToPasteIsTaken(t *testing.T) {
	t.Parallel()
	n := 0
	require.NoError(t, filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{"testdata", "scripts", "docs", "bin", ".git"}, d.Name()):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".gen.go"):
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			for _, words := range linesIn(t, node) {
				n++
				assert.NoError(t, taken(words), "%s: %q", files.Position(node.Pos()), words)
			}
			_, of := node.(*ast.KeyValueExpr)
			return !of || !slices.Contains([]string{"Long", "Example"}, keyOf(node))
		})
		return nil
	}))
	require.Greater(t, n, 150, "the lines are found")
}

// unknown is a word that is known when a line is printed.
const unknown = "7"

func keyOf(node ast.Node) string {
	if id, is := node.(*ast.KeyValueExpr).Key.(*ast.Ident); is {
		return id.Name
	}
	return ""
}

// lineIn is where a text has a line of this program to paste.
var lineIn = regexp.MustCompile(`(?:^|: )spawnmesh ([a-z][^;"()\n]*)`)

// labels of keys and signatures look like lines.
var labels = []string{`"spawnmesh identity"`, `"spawnmesh tls v1"`, `"spawnmesh webhook v1 "`}

// linesIn returns the lines to paste of a node itself, word by word: of a call that makes one, or of a text.
func linesIn(t *testing.T, node ast.Node) (list [][]string) {
	switch v := node.(type) {
	case *ast.CallExpr:
		f, is := v.Fun.(*ast.SelectorExpr)
		if !is || !slices.Contains([]string{"Running", "line", "Line"}, f.Sel.Name) || v.Ellipsis != token.NoPos || len(v.Args) == 0 {
			return nil
		}
		var words []string
		for _, arg := range v.Args {
			words = append(words, wordOf(t, arg))
		}
		if words[0] != unknown {
			list = append(list, words)
		}
	case *ast.BasicLit:
		if v.Kind == token.STRING && !slices.Contains(labels, v.Value) {
			for _, found := range lineIn.FindAllStringSubmatch(wordOf(t, v), -1) {
				assert.NotRegexp(t, ` $`, found[1], "%q: a name behind it is not quoted: use commands.Line", v.Value)
				list = append(list, strings.Fields(regexp.MustCompile(`%[a-z]|\bN\b`).ReplaceAllString(found[1], unknown)))
			}
		}
	}
	return list
}

func wordOf(t *testing.T, arg ast.Expr) string {
	lit, is := arg.(*ast.BasicLit)
	if !is || lit.Kind != token.STRING {
		return unknown
	}
	word, err := strconv.Unquote(lit.Value)
	require.NoError(t, err)
	return word
}

// taken checks a line against the commands: its command, its flags, how many arguments it has, and what the command demands.
func taken(words []string) error {
	root := (&app{out: io.Discard, err: io.Discard}).root()
	c, rest, err := root.Find(words)
	if err != nil || !c.Runnable() {
		return fmt.Errorf("no such command: %w", err)
	}
	switch err := c.ParseFlags(rest); {
	case errors.Is(err, pflag.ErrHelp):
		return nil
	case err != nil:
		return err
	}
	if err := c.ValidateArgs(c.Flags().Args()); err != nil {
		return err
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if strings.Contains(f.Usage, "(required)") && !f.Changed && err == nil {
			err = fmt.Errorf("it lacks --%s", f.Name)
		}
	})
	return err
}
