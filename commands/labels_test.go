package commands_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

func TestLabels(t *testing.T) {
	t.Parallel()
	long, many := strings.Repeat("x", commands.MaxLabelBytes), commands.Labels{}
	for i := range commands.MaxLabels {
		many[fmt.Sprint("k", i)] = "v"
	}
	for _, l := range []commands.Labels{nil, {}, {"a": ""}, {"A.b_c/d-9": "Z.y_x/w-0"}, {long: long}, many} {
		require.NoError(t, l.Check(), "%v", l)
	}
	many["one.more"] = "v"
	for _, l := range []commands.Labels{{"": "v"}, {"a b": "v"}, {"a": "v w"}, {"a=b": "v"}, {"a": "v,w"}, {"!a": "v"}, {long + "x": "v"}, {"a": long + "x"}, {"ü": "v"}, {"a": "\xff"}, {"a": "\x00"}, many} {
		require.Equal(t, commands.Validation, commands.CodeOf(l.Check()), "%v", l)
	}
}
