package main

import (
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersionOfEachWayOfBuilding(t *testing.T) {
	t.Parallel()
	const commit, asWritten = "0123456789abcdef0123456789abcdef01234567", "$Format:"
	settings := []debug.BuildSetting{{Key: "vcs.revision", Value: commit}, {Key: "vcs.modified", Value: "true"}}
	for name, tt := range map[string]struct {
		linked   string
		info     debug.BuildInfo
		archived string
		want     string
	}{
		"the linker's word goes first":            {"v9", debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, commit, "v9"},
		"go install of a version":                 {"", debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, asWritten, "v1.2.3"},
		"a checkout that go finds no version for": {"", debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: settings}, asWritten, "devel-0123456789ab+dirty"},
		"an archive of the source":                {"", debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, commit, "devel-0123456789ab"},
		"nothing that tells: go run, and go test": {"", debug.BuildInfo{}, asWritten, "devel"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			require.Equal(t, tt.want, versionFrom(tt.linked, &tt.info, tt.archived))
		})
	}
}

func TestMakeBuildStampsTheVersionItIsGiven(t *testing.T) {
	t.Parallel()
	bin := filepath.Join(t.TempDir(), "spawnmesh")
	said, err := exec.CommandContext(t.Context(), "make", "-C", "../..", "build", "BIN="+bin, "VERSION=v9.9.9-test").CombinedOutput()
	require.NoError(t, err, "%s", said)

	out, err := exec.CommandContext(t.Context(), bin, "version", "-o", "name").Output()

	require.NoError(t, err)
	require.Equal(t, "v9.9.9-test\n", string(out))
}
