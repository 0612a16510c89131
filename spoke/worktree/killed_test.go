package worktree_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/scale"
	"github.com/spawnmesh/spawnmesh/spoke/worktree"
)

// A process that is killed at any moment is followed by one that comes to the same.
func TestAKilledProcessIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv("SPAWNMESH_KILLED"); dir != "" {
		goThrough(t, dir)
		return
	}
	k := begin(t, some)
	for i := range 200 {
		require.NoError(t, os.WriteFile(filepath.Join(k.work, fmt.Sprint("f", i)), bytes.Repeat([]byte{byte(i)}, 50_000), 0o600))
	}
	require.NoError(t, os.RemoveAll(filepath.Join(k.work, ".git")))
	dir := t.TempDir()
	require.NoError(t, os.Rename(k.work, dir+"/left"))
	require.NoError(t, os.WriteFile(dir+"/bundle", k.bundle, 0o600))
	require.NoError(t, os.WriteFile(dir+"/tip", []byte(k.in.Tip+" "+k.in.Origin), 0o600))
	run := func(patience time.Duration) bool {
		c := exec.Command(os.Args[0], "-test.run=^TestAKilledProcessIsFollowedByAnother$")
		c.Env = append(os.Environ(), "SPAWNMESH_KILLED="+dir, "TMPDIR="+dir)
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		require.NoError(t, c.Start())
		timer := time.AfterFunc(patience, func() { _ = c.Process.Kill() })
		defer timer.Stop()
		return c.Wait() == nil
	}
	began := time.Now()
	require.True(t, run(time.Minute))
	whole := time.Since(began)
	want, err := os.ReadFile(dir + "/done")
	require.NoError(t, err)
	rnd := rand.New(rand.NewPCG(scale.Seed(t, "SPAWNMESH_KILL_SEED"), 0))
	killed := 0
	for range scale.Larger(t, "SPAWNMESH_KILLS", 4, 60) {
		require.NoError(t, os.RemoveAll(dir+"/repo"))
		require.NoError(t, os.Remove(dir+"/done"))
		for range 3 {
			if !run(time.Duration(rnd.Int64N(int64(whole)))) {
				killed++
			}
		}
		require.True(t, run(time.Minute))
		got, err := os.ReadFile(dir + "/done")
		require.NoError(t, err)
		require.Equal(t, string(want), string(got))
		sh(t, dir+"/repo", "git fsck --strict")
	}
	t.Log("killed", killed, "of whole", whole)
}

// goThrough is all that a daemon does for an attempt.
func goThrough(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile(dir + "/tip")
	require.NoError(t, err)
	tip, origin, _ := strings.Cut(string(text), " ")
	bundle, err := os.Open(dir + "/bundle")
	require.NoError(t, err)
	defer bundle.Close()
	r, err := worktree.Create(t.Context(), find(t), dir+"/repo", bundle, worktree.Input{Tip: tip, Origin: origin, Most: most})
	require.NoError(t, err)
	require.NoError(t, r.Checkout(t.Context(), t.TempDir(), "t1", tip, room))
	left, err := r.Collect(t.Context(), dir+"/left", tip, 1, by, bounds)
	require.NoError(t, err)
	var out bytes.Buffer
	n, err := r.Bundle(t.Context(), r.Origin(), left.Tip, "t1", &out)
	require.NoError(t, err)
	packs, err := filepath.Glob(dir + "/repo/objects/pack/*")
	require.NoError(t, err)
	drafts, err := filepath.Glob(dir + "/repo/objects/tmp_*")
	require.NoError(t, err)
	done := fmt.Sprint(left.Tip, n, len(out.Bytes()), strings.ReplaceAll(fmt.Sprint(packs), dir, ""), drafts)
	require.NoError(t, os.WriteFile(dir+"/done", []byte(done), 0o600))
}
