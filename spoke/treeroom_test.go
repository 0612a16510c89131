package spoke_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// wideInput is of a repository whose files are many times as large as what is sent of it: each is the same blob.
func wideInput(t *testing.T, m *meshtest.Mesh) commands.Input {
	t.Helper()
	o := newOperator(t)
	o.sh(`id=$(head -c 67108864 /dev/zero | git hash-object -w --stdin); for i in $(seq 64); do printf '100644 %s\tf%s\n' $id $i; done | git update-index --index-info; git commit -qm wide`)
	var bundle bytes.Buffer
	in, err := o.git.BundleTree(t.Context(), o.dir, "", false, &bundle)
	require.NoError(t, err)
	sent, err := control.Answer(control.NewClient(m.Hub.Dir).API().PutBlobWithBodyWithResponse(t.Context(), "application/octet-stream", &bundle))
	require.NoError(t, err)
	return commands.Input{Kind: commands.InputGit, Blob: commands.Blob{Digest: sent.Digest, Size: sent.Size}, Tip: in.Tip, Origin: in.Origin}
}

// Inputs for which the disk has no room now are tried again, and it is said why. What an agent may not have at all is refused at once.
func TestInputsThatLackRoomNowAreTriedAgain(t *testing.T) {
	t.Parallel()
	free, err := spoke.Free(t.TempDir())
	require.NoError(t, err)
	limits := func(disk string) string {
		return limitedTo(fmt.Sprintf("reserve: %d", free.Bytes-2<<30), "disk: "+disk)
	}
	m := meshtest.Plan{Policy: limits("none"), Passable: true}.Start(t, "attic")
	s, in := m.Spokes["attic"], wideInput(t, m)
	task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, BackoffMS: 50, Inputs: []commands.Input{in}, Argv: []string{"true"}}})

	meshtest.Await(t, "the next attempt", func() bool { return s.Count(t, `SELECT count(*) FROM tasks WHERE id = $1 AND attempt > 1`, task) == 1 })
	meshtest.Await(t, "that it is said why", func() bool {
		var why backlog.Why
		s.Do(t, "GET", "/api/v1/tasks/"+task+"/why", nil, &why)
		return len(why.Reasons) > 0 && strings.Contains(why.Reasons[0].Text, "no space left on device above limits.reserve of the policy")
	})

	_, err = rewrite(t, s, limits("1GiB"))
	require.NoError(t, err)
	v := m.Wait(t, task)
	require.Equal(t, commands.Unavailable, v.State, "%s", v.Result)
}
