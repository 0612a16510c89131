package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The types in the tree are those of the schema in the tree.
func TestTheTypesAreThoseOfTheSchema(t *testing.T) {
	schema, err := os.ReadFile("../../spoke/acp/wire/schema.json")
	require.NoError(t, err)
	kept, err := os.ReadFile("../../spoke/acp/wire/types.gen.go")
	require.NoError(t, err)

	made, err := generate(schema)

	require.NoError(t, err)
	require.Equal(t, string(kept), string(made), "run go generate ./spoke/acp/wire")
}
