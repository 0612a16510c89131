package layout

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Commands ask by the generated client, so that a path that changes is no surprise at run time. "spawnmesh api" asks for
// whatever it is given.
func TestCommandsNameNoPathsOfTheAPI(t *testing.T) {
	files, err := filepath.Glob("../../cmd/spawnmesh/*.go")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || filepath.Base(file) == "api.go" {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NotContains(t, string(text), "/api/v1", "%s: use control.Client.API", file)
	}
}
