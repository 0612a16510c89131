package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/git"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// What is not committed goes to an agent, and what this commits and leaves comes back as a branch, whoever looks at it first.
func TestWorkGoesOutAndComesBackByHand(t *testing.T) {
	t.Parallel()
	m := startHub(t)
	withCluster(t, filepath.Join(m.Dir, "attic"))
	require.NoError(t, m.AddSpoke(t.Context(), "attic", policy.Presets["open"], "--heartbeat", "1s"))
	h, repo := hand{t: t, dir: m.Hub.Dir}, aRepository(t)
	large := put(t, "large", strings.Repeat("0123456789abcde\n", 20<<10), 0o600)

	ran := h.run("", "spawn", "--with", repo, "--dirty", "--file", large+":in/large", "--title", "worked", "--wait", "--", "sh", "-ec",
		`test "$(cat a)" = two; test "$(wc -c <in/large)" = 327680; echo "three" >a; git commit -qam 'by the agent'; printf 'left\033[31m\n' >left`)

	require.Zero(t, ran.code, ran.err)
	id := strings.TrimSpace(h.do("agents", "-o", "name"))
	short := commands.ShortID(id)
	var got fetched
	h.read(&got, 0, "fetch", short, "--into", repo, "--wait")
	head := shellIn(t, repo, "git rev-parse HEAD")
	require.Equal(t, fetched{ID: id, Repository: repo, Branch: "spawnmesh/" + id, Base: head, Tip: shellIn(t, repo, "git rev-parse spawnmesh/"+id), Commits: 3, Left: true, Kept: got.Kept, Digest: got.Digest, Size: got.Size}, got)
	require.Equal(t, "spawnmesh: left by attempt 1\nby the agent\nspawnmesh: uncommitted files\nfirst", shellIn(t, repo, "git log --format=%s spawnmesh/"+id))
	require.Equal(t, "three", shellIn(t, repo, "git show spawnmesh/"+id+":a"))
	require.Equal(t, "two", shellIn(t, repo, "cat a"), "the operator's own files are as they were")
	again := h.do("fetch", short, "--into", repo)
	require.Contains(t, again, "it was here before")
	require.Contains(t, again, "git -C "+repo+" merge spawnmesh/"+id)

	changed := h.do("diff", short, "--repo", repo)
	require.Contains(t, changed, "-one\n+three\n")
	require.Contains(t, changed, "+left\x1b[31m\n", "a pipe gets it as it is")
	inRepo := hand{t: t, dir: m.Hub.Dir}
	var asJSON struct{ Diff string }
	inRepo.read(&asJSON, 0, "diff", short, "--repo", repo+"/sub")
	require.Equal(t, changed, asJSON.Diff)

	shellIn(t, repo, "git branch -f spawnmesh/"+id+" $(git commit-tree -m other HEAD^{tree})")
	h.refused(exitConflict, "the branch has other commits", "fetch", short, "--into", repo)
	other := aRepository(t)
	shellIn(t, other, "git commit -q --amend -m other")
	h.refused(exitMisuse, "name the repository that the order was made from", "fetch", short, "--into", other)
	h.refused(exitMisuse, "name the repository that the order was made from", "diff", short, "--repo", other)
	h.refused(exitMisuse, "not in a git repository", "fetch", short, "--into", t.TempDir())
	shellIn(t, repo, "git branch -f spawnmesh/"+id+" "+head+"; git checkout -q spawnmesh/"+id+" 2>/dev/null || git checkout -qf spawnmesh/"+id)
	h.refused(exitConflict, "check out another branch there", "fetch", short, "--into", repo)
	shellIn(t, repo, "git checkout -qf main")
	spoilt, err := filepath.Glob(filepath.Join(m.Hub.Dir, "blobs", "*", got.Digest[len("sha256-"):]))
	require.NoError(t, err)
	require.Len(t, spoilt, 1)
	require.NoError(t, os.Chmod(spoilt[0], 0o600))
	require.NoError(t, os.Truncate(spoilt[0], got.Size-1))
	h.refused(exitUnreachable, "nothing was fetched", "fetch", short, "--into", other)
	require.Empty(t, shellIn(t, other, "git branch --list 'spawnmesh/*'"))
	shellIn(t, repo, "git branch -D spawnmesh/"+id)
	h.read(&got, 0, "fetch", short, "--into", repo, "--wait") // its spoke has brought it again
	require.NoError(t, os.Remove(spoilt[0]))
	h.refused(exitNoResult, "are not on this hub's disk any more: its spoke brings them again", "diff", short, "--repo", repo)
	h.do("fetch", short, "--into", repo, "--wait")
}

// What a hub has is compared with what the spoke has signed, whatever the hub says.
func TestWorkIsWhatTheSpokeHasSigned(t *testing.T) {
	t.Parallel()
	signed := blobOf([]byte("signed"))
	for sent, ok := range map[string]bool{"signed": true, "forged": false, "signed and more": false, "sign": false} {
		w := &work{TaskResult: api.TaskResult{Bundle: api.Bundle{Digest: signed.Digest, Size: signed.Size}}}
		err := w.take(t.Context(), strings.NewReader(sent), &lasting{})
		if ok {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, "is not what its spoke has signed", sent)
		require.Equal(t, exitMisuse, exitOfCode(refusal(err).Code))
	}
}

// A spoke does not choose what its work is shown against: the order says that.
func TestWorkIsOnTheCommitOfItsOrder(t *testing.T) {
	t.Parallel()
	one, two := strings.Repeat("1", 40), strings.Repeat("2", 40)
	w := &work{TaskResult: api.TaskResult{ID: "t", Origin: one, Bundle: api.Bundle{Base: one, Tip: two}}}
	require.NoError(t, w.onOrigin())
	require.Equal(t, []string{git.Branches + "t", one, two}, []string{w.forGit().Branch, w.forGit().Base, w.forGit().Tip})
	for _, origin := range []string{two, ""} {
		w.Origin = origin
		err := w.onOrigin()
		require.ErrorContains(t, err, "the order was for work on")
		require.Equal(t, exitConflict, exitOfCode(refusal(err).Code))
	}
}

// What is held of a text has a bound, and who writes more is ended.
func TestATextThatIsHeldHasABound(t *testing.T) {
	t.Parallel()
	h := &heldText{most: 10}
	_, err := h.Write([]byte("0123456789"))
	require.NoError(t, err)
	require.False(t, h.over)
	for range 2 {
		_, err = h.Write([]byte("x"))
		require.Error(t, err)
	}
	require.True(t, h.over)
	require.Equal(t, "0123456789", h.String())
}

// What has no work yet, or never, is said with the code of no result, or as not found.
func TestWorkThatIsNotThere(t *testing.T) {
	t.Parallel()
	m := startHub(t)
	withCluster(t, filepath.Join(m.Dir, "attic"))
	require.NoError(t, m.AddSpoke(t.Context(), "attic", policy.Presets["open"], "--heartbeat", "1s"))
	h, repo := hand{t: t, dir: m.Hub.Dir}, aRepository(t)
	id := h.spawn("--with", repo, "--", "sleep", "600")
	h.runs(id)
	for _, command := range [][]string{{"fetch", id, "--into", repo}, {"diff", id, "--repo", repo}} {
		h.refused(exitNoResult, "has no result yet: it is running", command...)
	}
	h.do("kill", id, "--reason", "enough")
	h.ends(id)
	h.refused(exitNotFound, "has left no commits", "fetch", id, "--into", repo)
	h.refused(exitNotFound, "none", "fetch", "none", "--into", repo)
	require.NotContains(t, shellIn(t, repo, "git branch --list 'spawnmesh/*'"), id)
}
