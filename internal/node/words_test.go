package node

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Who asks over the network has no flags: what handlers say names none, and what they call names no directory of the
// instance and asks for no reason by a flag.
func TestAnswersNameNoFlags(t *testing.T) {
	t.Parallel()
	for dir, flag := range map[string]string{".": `--`, "../../hub": `--data-dir`, "../../federation": `--`, "../../commands": `--(data-dir|reason)`, "../../store": `--(data-dir|reason)`, "../../store/backlog": `--(data-dir|reason)`} {
		texts := problemTexts(t, dir)
		require.NotEmpty(t, texts, dir)
		for _, text := range texts {
			require.NotRegexp(t, flag, text, dir)
		}
	}
}

// problemTexts are the texts of the problems that the package in dir makes.
func problemTexts(t *testing.T, dir string) (texts []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if made, ok := call.Fun.(*ast.SelectorExpr); ok && (made.Sel.Name == "Refuse" || made.Sel.Name == "Hinting") {
				for _, arg := range call.Args {
					if text, ok := arg.(*ast.BasicLit); ok {
						texts = append(texts, text.Value)
					}
				}
			}
			return true
		})
	}
	return texts
}
