package hub_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/blob"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// Bytes are sent before their order, as they are and of any length; what is no such body is refused, and so is an order
// of bytes that the hub does not have, and one for a spoke whose policy takes none.
func TestInputsAreSentBeforeTheirOrder(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{}.Start(t, "attic")
	text := bytes.Repeat([]byte("a\x00\xff"), 400_000) // more than any other body
	client := control.NewClient(m.Hub.Dir).API()
	send := func() api.Blob {
		b, err := control.Answer(client.PutBlobWithBodyWithResponse(t.Context(), "application/octet-stream", bytes.NewReader(text)))
		require.NoError(t, err)
		return b
	}

	b := send()

	require.Equal(t, api.Blob{Digest: blob.Of(text).String(), Size: int64(len(text))}, b)
	require.Equal(t, b, send(), "the same once more")
	digits := strings.TrimPrefix(b.Digest, "sha256-")
	kept, err := os.ReadFile(filepath.Join(m.Hub.Dir, "blobs", digits[:2], digits))
	require.NoError(t, err)
	require.Equal(t, text, kept)
	require.Equal(t, map[string]string{"blob.given": "uid:" + strconv.Itoa(os.Geteuid())}, m.Hub.Pairs(t, `SELECT action, actor FROM audit WHERE object = '`+b.Digest+`' GROUP BY 1, 2`))

	_, err = control.Answer(client.PutBlobWithBodyWithResponse(t.Context(), "application/json", strings.NewReader("{}")))
	require.Equal(t, commands.UnsupportedMedia, commands.CodeOf(err))
	r := hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"true"},
		Inputs: []commands.Input{{Kind: commands.InputFile, Blob: commands.Blob{Digest: b.Digest, Size: b.Size}, Path: "in/data"}}}}
	require.Equal(t, r.Spawn, hub.RequestOf(r.Revealed()).Spawn, "all of it is sent")
	require.NoError(t, os.WriteFile(policy.File(m.Spokes["attic"].Dir), []byte(strings.Replace(meshtest.Loose(policy.Presets["open"]), "max_input_bytes: 1GiB", "max_input_bytes: 0", 1)), 0o600))
	m.Spokes["attic"].Do(t, "POST", "/api/v1/policy/reload", nil, nil)
	meshtest.Await(t, "the hub knows that it takes none", func() bool {
		err = m.Hub.Ask(t, "POST", "/api/v1/tasks", r.Revealed(), nil)
		return err != nil
	})
	require.Equal(t, commands.Capability, commands.CodeOf(err))
	require.ErrorContains(t, err, "spoke attic takes no inputs of an order")
}
