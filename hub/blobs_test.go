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
)

// Bytes are sent before their order, as they are and of any length; what is no such body is refused, and so is an order
// of bytes that the hub does not have, and one for a spoke that fetches none.
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
	err = m.Hub.Ask(t, "POST", "/api/v1/tasks", r.Revealed(), nil)
	require.Equal(t, commands.Capability, commands.CodeOf(err))
	require.ErrorContains(t, err, "spoke attic takes no inputs of an order")
}
