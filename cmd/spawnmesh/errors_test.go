package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

// A program is told whether what it asked may have been done, and need not read the words for it.
func TestAProgramIsToldWhatMayBeDone(t *testing.T) {
	t.Parallel()
	for _, may := range []bool{false, true} {
		var out bytes.Buffer
		a := &app{err: &out, output: "json"}

		code := a.printError(&commands.Refused{Code: commands.StoreDown, Why: "w", Hint: "h", MayBeDone: may})

		require.Equal(t, exitOfCode(commands.StoreDown), code)
		want := `{"error": {"code": "STORE", "reason": "STORE", "message": "w", "hint": "h"}}`
		if may {
			want = `{"error": {"code": "STORE", "reason": "STORE", "message": "w", "hint": "h", "may_be_done": true}}`
		}
		require.JSONEq(t, want, out.String())
	}
}
