package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

// A secret whose value is not looked for in output is named, before the order is given.
func TestAShortSecretIsNoted(t *testing.T) {
	t.Parallel()
	put := func(value string) string {
		path := filepath.Join(t.TempDir(), "value")
		require.NoError(t, os.WriteFile(path, []byte(value), 0o600))
		return path
	}
	f := spawnFlags{secrets: []string{"PIN=@" + put("12345\n"), "LONG=@" + put("123456\n")}, secretFiles: []string{"KEY=@" + put("1234 \n"), "NONE=@" + put("")}}

	notes, err := f.environment()

	require.NoError(t, err)
	require.Equal(t, []string{
		"the value of --secret PIN is too short to be looked for (less than 6 bytes): where the agent writes it, it stays in the output",
		"the value of --secret-file KEY is too short to be looked for (less than 6 bytes): where the agent writes it, it stays in the output",
		"the value of --secret-file NONE is empty",
	}, notes)
	require.Len(t, f.req.Values, 4)
}

// A file of a secret that cannot be read is a command line that cannot be meant, whoever may not read it.
func TestASecretThatCannotBeRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, f := range []spawnFlags{
		{secrets: []string{"X=@" + filepath.Join(dir, "missing")}}, {secretFiles: []string{"X=@" + filepath.Join(dir, "missing")}},
		{secrets: []string{"X=@" + dir}}, {secrets: []string{"X=plain"}}, {secrets: []string{"X=env:NO_SUCH_VARIABLE"}}, {env: []string{"X"}},
	} {
		_, err := f.environment()

		require.Equal(t, commands.Validation, commands.CodeOf(err))
		require.Equal(t, exitMisuse, exitOfCode(refusal(err).Code), "%v", err)
	}
}
