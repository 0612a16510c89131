package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A list that is longer than the screen goes through the pager of who reads it, on a terminal and
// nowhere else.
func TestLongListsArePaged(t *testing.T) {
	t.Parallel()
	list := func(rows int) table {
		l := table{head: []string{"STATE"}}
		for i := range rows {
			l.rows = append(l.rows, []string{fmt.Sprint("running ", i)})
		}
		return l
	}
	mine := map[string]string{"SPAWNMESH_PAGER": "sed 's/^/> /'", "PAGER": "false"}
	for name, tt := range map[string]struct {
		a     app
		env   map[string]string
		rows  int
		first string
	}{
		"a long one":            {app{}, mine, 30, "> STATE"},
		"its colours":           {app{}, map[string]string{"PAGER": "tail -n +2 | cat -v", "TERM": "xterm"}, 30, "^[[32mrunning 0^[[0m"},
		"a short one":           {app{}, mine, 10, "STATE"},
		"just the screen":       {app{}, mine, 22, "STATE"},
		"by a flag":             {app{noPager: true}, mine, 30, "STATE"},
		"by a wish":             {app{}, map[string]string{"SPAWNMESH_PAGER": "cat", "PAGER": "sed 's/^/> /'"}, 30, "STATE"},
		"one that is not there": {app{}, map[string]string{"PAGER": "no-such-pager 2>/dev/null"}, 30, "STATE"},
		"for a program":         {app{output: "ndjson"}, mine, 30, `"x"`},
	} {
		t.Run(name, func(t *testing.T) {
			lines := shownOn(t, 80, 1, func(screen *os.File) error {
				a := tt.a
				a.out, a.getenv = screen, func(name string) string { return tt.env[name] }
				if a.output == "" {
					a.output = "table"
				}
				return a.print("x", []any{"x"}, list(tt.rows))
			})
			require.Equal(t, tt.first, lines[0])
		})
	}
	var file strings.Builder
	a := &app{out: &file, output: "table", getenv: func(name string) string { return mine[name] }}
	require.NoError(t, a.print(nil, nil, list(30)))
	require.True(t, strings.HasPrefix(file.String(), "STATE\n"))
}
