package commands_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

func TestSelectors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]commands.Selector{
		"":                             {},
		" ":                            {},
		"a=1":                          {Has: commands.Labels{"a": "1"}},
		"a=1,a=1, b=":                  {Has: commands.Labels{"a": "1", "b": ""}},
		"a!=1,a!=2":                    {HasNot: []commands.Labels{{"a": "1"}, {"a": "2"}}},
		"a!=":                          {HasNot: []commands.Labels{{"a": ""}}},
		"a,!b,c/d.e_f-g=X":             {Has: commands.Labels{"c/d.e_f-g": "X"}, Names: []string{"a"}, NoNames: []string{"b"}},
		"a=1,a!=2,a,!a":                {Has: commands.Labels{"a": "1"}, HasNot: []commands.Labels{{"a": "2"}}, Names: []string{"a"}, NoNames: []string{"a"}},
		strings.Repeat("a,", 31) + "b": {Names: append(strings.Split(strings.Repeat("a", 31), ""), "b")},
	} {
		got, err := commands.ParseSelector(text)

		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		require.Equal(t, strings.TrimSpace(text) == "", got.Empty(), text)
		require.Equal(t, len(want.Has)+len(want.Names) == 0, got.Unlabelled(), text)
	}
	for _, text := range []string{",", "a,", ",a", "=", "=1", "!", "!=1", "a!", "!a=1", "!a!", "!!a", "a==1", "a=1=2", "a b", "a=b c", "a=1,a=2", "ü", "a in (b)", strings.Repeat("a", 64), "a\x00", strings.Repeat("a,", 32) + "b"} {
		_, err := commands.ParseSelector(text)

		require.Equal(t, commands.Validation, commands.CodeOf(err), text)
	}
}
