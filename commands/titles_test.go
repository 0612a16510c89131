package commands

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// A code without a title would be shown instead of one.
func TestEveryCodeHasATitle(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "refused.go", nil, 0)
	require.NoError(t, err)
	n := 0
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if text, ok := spec.Values[0].(*ast.BasicLit); ok && text.Kind == token.STRING {
			code, err := strconv.Unquote(text.Value)
			require.NoError(t, err)
			require.NotEqual(t, code, Title(Code(code)), "add it to titles")
			n++
		}
		return true
	})
	require.Equal(t, len(titles), n, "titles of codes that are there no more")
	require.Equal(t, "SIG_BAD", Title("SIG_BAD"))
}
