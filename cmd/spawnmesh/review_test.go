package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// What an agent delivers is sent back with changes, approved and merged, by commands alone: it has completed on both sides then, and the branch
// has it. What conflicts goes back to its agent with the names of the files, and nothing was changed.
func TestAReviewFromDeliveryToMerge(t *testing.T) {
	t.Parallel()
	m := startHub(t)
	withCluster(t, filepath.Join(m.Dir, "attic"))
	require.NoError(t, m.AddSpoke(t.Context(), "attic", policy.Presets["open"], "--heartbeat", "1s"))
	h, repo := hand{t: t, dir: m.Hub.Dir}, aRepository(t)
	at := hand{t: t, dir: filepath.Join(m.Dir, "attic")}
	shellIn(t, repo, "git checkout -qf --detach")
	// The first attempt changes a, each other one keeps what it was told.
	id := h.spawn("--with", repo, "--review", "--", "sh", "-ec",
		`if [ -z "$SPAWNMESH_PROMPT_FILE" ]; then echo agent >a; else cat "$SPAWNMESH_PROMPT_FILE" >>told; fi; git add -A; git commit -qm "attempt of $SPAWNMESH_REVIEW"`)
	delivered := func(attempt int) {
		t.Helper()
		h.until(id, func(v hub.AgentView) bool { return v.State == commands.InReview && v.Attempt == attempt })
	}
	delivered(1)
	short := commands.ShortID(id)
	require.Contains(t, h.do("review", "list"), short)
	require.Contains(t, h.do("review", "diff", id, "--repo", repo), "+agent\n")
	h.refused(exitConflict, "is not merged before it is approved", "review", "merge", id, "--into", repo, "--onto", "main")
	h.refused(exitMisuse, "nothing says what is to be changed", "review", "request-changes", id)

	require.Contains(t, h.do("review", "request-changes", id, "--message", "say what was told"), "sent back with changes")
	delivered(2)
	require.Contains(t, h.do("review", "diff", id, "--repo", repo), "+say what was told\n")
	h.refused(exitConflict, "attempt", "review", "approve", id, "--attempt", "1")
	require.Contains(t, h.do("review", "approve", id), "attempt 2 was approved")
	require.Contains(t, h.do("why", id), "review merge "+short)

	shellIn(t, repo, "git checkout -q main && echo ours >a && git commit -qam ours && git checkout -q --detach")
	was := shellIn(t, repo, "git rev-parse main")
	conflict := h.run("", "review", "merge", id, "--into", repo, "--onto", "main")
	require.Equal(t, exitConflict, conflict.code, conflict.out+conflict.err)
	require.Contains(t, conflict.err, "Both change: - a")
	require.Equal(t, was, shellIn(t, repo, "git rev-parse main"))
	delivered(3)
	require.Contains(t, h.do("review", "diff", id, "--repo", repo), "+- a\n")

	// The operator's own commit is taken back: now it is a merge of both that does it.
	shellIn(t, repo, "git branch -f main main~1 && git checkout -q main && echo more >other && git add other && git commit -qm other && git checkout -q --detach")
	h.do("review", "approve", id)
	require.Contains(t, h.do("review", "merge", id, "--into", repo, "--onto", "main"), "merged")
	v := h.ends(id)
	require.Equal(t, []any{commands.Completed, 3}, []any{v.State, v.Attempt})
	meshtest.Await(t, "the spoke has it as completed", func() bool { return strings.Contains(at.do("status", id), "completed") })
	require.Empty(t, h.do("review", "list", "-o", "name"))
	require.Contains(t, shellIn(t, repo, "git log --format=%s main"), "Merge the work of agent "+short+" into main")
	require.Equal(t, "agent more", strings.Join(strings.Fields(shellIn(t, repo, "git show main:a main:other")), " "))

	var r api.TaskResult
	h.read(&r, 0, "result", id)
	require.Equal(t, string(commands.ResultKind), r.Provenance.Result.Kind)
}
