package layout

import (
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var logged = regexp.MustCompile(`^(Info|Warn|Error)(Context)?$`)

// text is the message that an expression makes; what is only known when the
// program runs is shown as "…".
func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(e.Value); err == nil {
			return s
		}
	case *ast.BinaryExpr:
		return text(e.X) + text(e.Y)
	}
	return "…"
}

// logLines finds what hub and spoke write at INFO and above: level and message.
func logLines(t *testing.T) []string {
	t.Helper()
	// The message server's own words go through one line, in federation/transport/log.go.
	found := map[string]bool{"WARN the message server reports": true, "ERROR the message server reports": true}
	for _, p := range list(t) {
		room := strings.TrimPrefix(p.ImportPath, module)
		if strings.HasPrefix(room, "internal/meshtest") || strings.HasPrefix(room, "scripts/") {
			continue
		}
		for _, name := range p.GoFiles {
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, filepath.Join("../..", room, name), nil, 0)
			require.NoError(t, err)
			ast.Inspect(file, func(n ast.Node) bool {
				call, isCall := n.(*ast.CallExpr)
				if !isCall {
					return true
				}
				sel, isSel := call.Fun.(*ast.SelectorExpr)
				if !isSel {
					return true
				}
				m := logged.FindStringSubmatch(sel.Sel.Name)
				var on strings.Builder
				require.NoError(t, printer.Fprint(&on, fset, sel.X))
				if m == nil || !regexp.MustCompile(`(?i)(^|\.)s?log(\(\))?$`).MatchString(on.String()) {
					return true
				}
				at := 0
				if m[2] != "" {
					at = 1
				}
				message := text(call.Args[at])
				require.NotEqual(t, "…", message, "%s: the table of log lines needs a message to find it by", fset.Position(n.Pos()))
				found[strings.ToUpper(m[1])+" "+message] = true
				return true
			})
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// Whoever finds a line in a log finds it in docs/operating.md, with what to do.
func TestEveryLogLineIsExplained(t *testing.T) {
	raw, err := os.ReadFile("../../docs/operating.md")
	require.NoError(t, err)
	_, chapter, found := strings.Cut(string(raw), "\n## What the log says\n")
	require.True(t, found)
	chapter, _, _ = strings.Cut(chapter, "\n## ")
	var explained []string
	for _, m := range regexp.MustCompile("(?m)^\\| (INFO|WARN|ERROR) \\| `([^`]+)` \\| [^|]+ \\| [^|]+ \\|$").FindAllStringSubmatch(chapter, -1) {
		explained = append(explained, m[1]+" "+m[2])
	}
	slices.Sort(explained)
	lines := logLines(t)

	require.Greater(t, len(lines), 50)
	require.Equal(t, lines, explained, "the table in docs/operating.md, as the program writes it")
}
