package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/git"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// shellIn runs a script of an operator in a directory.
func shellIn(t *testing.T, dir, script string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "sh", "-ec", script)
	c.Dir = dir
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s\n%s", script, out)
	return strings.TrimSpace(string(out))
}

// aRepository is one with a commit and some files that are in none.
func aRepository(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "work")
	require.NoError(t, os.Mkdir(dir, 0o700))
	shellIn(t, dir, `git init -q -b main . && git config user.name op && git config user.email op@example.org && printf 'one\n' >a && mkdir sub && echo b >sub/b && echo '*.o' >.gitignore && git add . && git commit -qm first && echo two >a && echo new >n && echo x >x.o`)
	return dir
}

func packed(t *testing.T, f spawnFlags) ([]parcel, error) {
	t.Helper()
	list, err := f.pack(t.Context(), func(string) {})
	t.Cleanup(func() {
		for _, p := range list {
			p.close()
		}
	})
	return list, err
}

// A repository is sent as a bundle, a plain directory as a stream, a large file as it is; the first is the directory.
func TestWhatIsSentBeforeAnOrder(t *testing.T) {
	t.Parallel()
	repo, plain := aRepository(t), filepath.Join(t.TempDir(), "li@b")
	require.NoError(t, os.Mkdir(plain, 0o700))
	require.NoError(t, os.WriteFile(plain+"/l", []byte("library"), 0o600))
	large := put(t, "large", strings.Repeat("x", commands.MaxValueBytes-1), 0o700)
	f := spawnFlags{with: []string{repo + "/sub", plain, repo + "@main"}, dirty: false, beside: true, files: []string{large + ":in/large", put(t, "small", "y", 0o600) + ":small", put(t, "more", "yy", 0o600) + ":more"}}
	f.req.Values = commands.Values{commands.NewSecret("value")}
	require.NoError(t, f.bring())

	list, err := packed(t, f)

	require.NoError(t, err)
	require.Len(t, list, 4)
	head := shellIn(t, repo, "git rev-parse HEAD")
	require.Equal(t, commands.Input{Kind: "git", Blob: list[0].Blob, Tip: head, Origin: head}, list[0].Input, "where it is in the repository is no matter")
	require.Equal(t, commands.Input{Kind: "tar", Blob: list[1].Blob, Path: "li@b"}, list[1].Input)
	require.Equal(t, commands.Input{Kind: "git", Blob: list[0].Blob, Path: "work", Tip: head, Origin: head}, list[2].Input)
	require.Equal(t, commands.Input{Kind: "file", Blob: list[3].Blob, Path: "in/large", Exec: true}, list[3].Input)
	require.Equal(t, []commands.File{{Path: "small"}, {Path: "more"}}, f.req.Spawn.Files, "what has room comes with the order")
	for _, p := range list {
		text, err := io.ReadAll(p.file)
		require.NoError(t, err)
		require.Equal(t, p.Blob, blobOf(text), p.named)
	}
	in := tar.NewReader(io.NewSectionReader(list[1].file, 0, list[1].Size))
	h, err := in.Next()
	require.NoError(t, err)
	require.Equal(t, "l", h.Name)
	var bundle bytes.Buffer
	g, err := git.Find(t.Context())
	require.NoError(t, err)
	_, err = g.BundleTree(t.Context(), repo, "", false, &bundle)
	require.NoError(t, err)
	require.Equal(t, list[0].Blob, blobOf(bundle.Bytes()))
}

// What is not committed is sent when that is said, and said.
func TestUncommittedFilesAreSentWhenThatIsSaid(t *testing.T) {
	t.Parallel()
	repo := aRepository(t)
	list, err := packed(t, spawnFlags{with: []string{repo}, dirty: true})
	require.NoError(t, err)
	require.Regexp(t, `^input \S+ is sha256-[0-9a-f]{64}, \d+ bytes, commit `+shellIn(t, repo, "git rev-parse --short=12 HEAD")+`, with 2 uncommitted files$`, list[0].String())
	require.NotEqual(t, shellIn(t, repo, "git rev-parse HEAD"), list[0].Tip)
	require.Contains(t, shellIn(t, repo, "git status --porcelain"), "?? n", "the repository is as it was")
	require.Empty(t, list[0].notes)
}

// Without --dirty it is said how many uncommitted files are not sent.
func TestUncommittedFilesThatAreNotSentAreCounted(t *testing.T) {
	t.Parallel()
	repo := aRepository(t)
	shellIn(t, repo, "git mv sub/b sub/c && mkdir deep && echo n >deep/n && git init -q nested && echo n >nested/n")
	list, err := packed(t, spawnFlags{with: []string{repo + "/sub"}})
	require.NoError(t, err)
	require.Equal(t, []string{"not sent: 5 uncommitted files of " + repo + "/sub; with --dirty they are"}, list[0].notes)
	sent, err := packed(t, spawnFlags{with: []string{repo}, dirty: true})
	require.NoError(t, err)
	require.Contains(t, sent[0].more, "with 5 uncommitted files", "the number is that of --dirty")

	shellIn(t, repo, "git add deep a n sub && git commit -qm second")
	for _, with := range []string{repo, repo + "@HEAD~1"} {
		list, err = packed(t, spawnFlags{with: []string{with}})
		require.NoError(t, err)
		require.Empty(t, list[0].notes, "%s: nothing is left behind, or another commit was asked for", with)
	}
}

func TestWhatCannotBeSent(t *testing.T) {
	t.Parallel()
	repo, plain, none := aRepository(t), t.TempDir(), t.TempDir()
	shellIn(t, none, "git init -q . && mkdir "+plain+"/pipe && mkfifo "+plain+"/pipe/p && git clone -q --depth 1 file://"+repo+" "+plain+"/shallow && ln -s /etc "+plain+"/out")
	for why, f := range map[string]spawnFlags{
		"there is no such directory":     {with: []string{repo + "/none@main"}},
		"it is no directory":             {with: []string{repo + "/a"}},
		"write --with PATH":              {with: []string{"@main"}},
		`has no commit "none"`:           {with: []string{repo + "@none"}},
		"git fetch --unshallow":          {with: []string{plain + "/shallow"}},
		"has no commit yet":              {with: []string{none}},
		"send one or the other":          {with: []string{repo + "@HEAD:sub", repo}, dirty: true},
		"is in no repository of git":     {with: []string{plain + "@main"}},
		"of a plain directory all files": {with: []string{filepath.Dir(put(t, "f", "", 0o600))}, dirty: true},
		"add --with .":                   {dirty: true},
		"neither a file nor a directory": {with: []string{plain + "/pipe"}},
		"no such file":                   {large: []largeFile{{"x:y", plain + "/x", commands.File{Path: "y"}}}},
	} {
		if why == "send one or the other" {
			shellIn(t, repo, "git commit -qam second")
			f.with = []string{repo + "@HEAD~1"}
		}
		_, err := packed(t, f)
		r := refusal(err)
		require.Contains(t, r.Why+" "+r.Hint, why)
		require.Equal(t, exitMisuse, exitOfCode(r.Code), why)
	}
	shellIn(t, none, "echo x >x")
	_, err := packed(t, spawnFlags{with: []string{none}, dirty: true})
	require.ErrorContains(t, err, "git commit --allow-empty", "what an agent would leave could build on nothing")
}

// What an order is to name is sent before it. A hub that does not take it, and a spoke that takes none, are named.
func TestInputsByHand(t *testing.T) {
	t.Parallel()
	m := startHub(t, "--max-input", "200KiB")
	withCluster(t, filepath.Join(m.Dir, "attic"))
	without := strings.Replace(policy.Presets["open"], "max_input_bytes: 1GiB", "max_input_bytes: 0", 1)
	require.NoError(t, m.AddSpoke(t.Context(), "attic", without, "--heartbeat", "1s"))
	h, repo := hand{t: t, dir: m.Hub.Dir}, aRepository(t)
	temp := t.TempDir()
	h.env = append(h.env, "TMPDIR="+temp)

	refused := h.run("", "spawn", "--with", repo, "--dirty", "--", "true")

	require.Equal(t, exitNoSpoke, refused.code, refused.err)
	require.Contains(t, refused.err, "spoke attic takes no inputs of an order")
	require.Contains(t, refused.err, "with 2 uncommitted files")
	list, err := packed(t, spawnFlags{with: []string{repo}, dirty: true})
	require.NoError(t, err)
	kept, err := filepath.Glob(filepath.Join(m.Hub.Dir, "blobs", "*", "*"))
	require.NoError(t, err)
	require.Contains(t, strings.Join(kept, "\n"), list[0].Digest[7:17])
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left)
	h.refused(exitMisuse, "inputs are put into a fresh directory only", "spawn", "--with", repo, "--dir", "/tmp", "--", "true")
	h.refused(exitRefused, "two inputs or files are to be at", "spawn", "--with", repo, "--with", repo, "--with", repo, "--", "true")
	h.refused(exitMisuse, "--with and --dirty are for one agent", "spawn", "--with", repo, "-f", "jobs.yaml")
	large := put(t, "large", strings.Repeat("0123456789", 300<<10), 0o600)
	h.refused(exitMisuse, "which is the most that this hub takes of one input; nothing was ordered", "spawn", "--file", large+":large", "--", "true")
	said := h.run("", "-o", "json", "spawn", "--with", repo, "--", "true")
	require.NotContains(t, said.err, "input "+repo)
	require.Zero(t, len(h.do("agents", "-o", "name")), "nothing was ordered")
}

func blobOf(text []byte) commands.Blob {
	sum := sha256.Sum256(text)
	return commands.Blob{Digest: "sha256-" + hex.EncodeToString(sum[:]), Size: int64(len(text))}
}
