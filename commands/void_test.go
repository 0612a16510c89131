package commands_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

// Numbers that no message has are below the base, in order, and not too many.
func TestVoidNumbersAreChecked(t *testing.T) {
	t.Parallel()
	many := make([]commands.Range, commands.MaxVoid+1)
	for i := range many {
		many[i] = commands.Range{From: int64(2*i + 1), To: int64(2*i + 1)}
	}
	for name, tt := range map[string]struct {
		void []commands.Range
		ok   bool
	}{
		"as many as there may be": {many[1:], true},
		"one more":                {many, false},
		"above the base":          {[]commands.Range{{From: 9, To: 1001}}, false},
		"backwards":               {[]commands.Range{{From: 9, To: 8}}, false},
		"out of order":            {[]commands.Range{{From: 9, To: 9}, {From: 9, To: 10}}, false},
		"number 0":                {[]commands.Range{{From: 0, To: 1}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			beat := commands.Heartbeat{IntervalMS: 1000, KillLevel: "tree", Version: "1", Connection: commands.ConnectionView{State: commands.ConnActive,
				Numbers: &commands.Numbering{Sent: 2000, Base: 1000, Void: tt.void}}}

			err := beat.Validate()

			require.Equal(t, tt.ok, err == nil, "%v", err)
		})
	}
}
