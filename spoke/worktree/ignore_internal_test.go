package worktree

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/scale"
)

// Rules are those of git: random ones are asked of both.
func TestRulesAreThoseOfGit(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(scale.Seed(t, "SPAWNMESH_IGNORE_SEED"), 0))
	for range scale.Larger(t, "SPAWNMESH_IGNORE_ROUNDS", 30, 1500) {
		compareRules(t, rnd)
	}
}

var (
	pieces  = []string{"a", "b", "ab", "*", "**", "***", "/", "/", "?", "[ab]", "[!a]", "[^b-]", "[a-c]", "[]a]", "[[:alpha:]]", "[[:digit:]x]", "[[:nope:]]", "[", "\\a", "\\*", "\\!", "\\#", "\\ ", " ", "!", "#", ".", "-", "é", "\xff", "[\\]]", "[a-", "[/]", "\\", "\r", "\t"}
	letters = []string{"a", "b", "ab", "abc", "c", "*", "!a", "#b", "a b", "a ", ".", "-", "x1", "é", "\xff", "[", "]", "\\", "..."}
)

func compareRules(t *testing.T, rnd *rand.Rand) {
	t.Helper()
	dir := t.TempDir()
	pick := func(of []string, most int) (text string) {
		for range 1 + rnd.IntN(most) {
			text += of[rnd.IntN(len(of))]
		}
		return text
	}
	text := func() string {
		var lines []string
		for range 1 + rnd.IntN(4) {
			lines = append(lines, pick(pieces, 5))
		}
		return strings.Join(lines, "\n")
	}
	top, below := text(), text()
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".gitignore"), []byte(top), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "ab"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ab", ".gitignore"), []byte(below), 0o600))
	steps := int64(stepsMost)
	root := (&rules{steps: &steps}).under("", top)
	inner := root.under("ab/", below)

	var asked []string
	want := map[string]bool{}
	for range 40 {
		path, ignored, r := "", false, root
		depth := 1 + rnd.IntN(4)
		for i := range depth {
			name := letters[rnd.IntN(len(letters))]
			if i == 0 && rnd.IntN(2) == 0 {
				name = "ab"
			}
			if name == "." {
				name = "._"
			}
			path += name
			dir := i < depth-1
			ignored = ignored || r.ignores(path, dir)
			if path == "ab" {
				r = inner
			}
			if dir {
				path += "/"
			}
		}
		if path != "ab" {
			asked = append(asked, path)
			want[path] = ignored
		}
	}
	c := exec.Command("git", "check-ignore", "--no-index", "--stdin", "-z")
	c.Dir = dir
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1"}
	c.Stdin = strings.NewReader(strings.Join(asked, "\x00") + "\x00")
	require.NoError(t, exec.Command("git", "init", "-q", dir).Run())
	out, err := c.Output()
	if c.ProcessState.ExitCode() > 1 {
		t.Fatalf("%s", err.(*exec.ExitError).Stderr)
	}
	says := map[string]bool{}
	for _, path := range strings.Split(string(out), "\x00") {
		says[path] = true
	}
	for _, path := range asked {
		require.Equal(t, says[path], want[path], "%q\n%q\n%q", path, top, below)
	}
}

// Rules that git itself would never be done with.
func TestHostileRulesEnd(t *testing.T) {
	t.Parallel()
	steps := int64(stepsMost)
	r := (&rules{steps: &steps}).under("", strings.Repeat("**/*a", 2000)+"b\n"+strings.Repeat("*a", 20_000)+"\n"+strings.Repeat("[a-z]", 10_000))
	began := time.Now()
	for range 10_000 {
		r.ignores(strings.Repeat("a/", 1000)+"c", false)
	}
	require.LessOrEqual(t, steps, int64(0), "the rest of the rules is not asked")
	t.Log(time.Since(began))
}

func TestNamesThatGitRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, exec.Command("git", "init", "-q", "--bare", dir).Run())
	for name, git := range map[string]bool{ // and what git says
		".git": false, ".GIT": false, ".gIt": false, ".git ": false, ".git.": false, ".git. .": false, "git~1": false, "GIT~1": false, ".git:stream": false, ".g\u200cit": false, "\ufeff.git": false, ".git\xff": false,
		"a\\.git": false, "a\\git~1": false, ".gitx": true, ".gitignore": true, "git": true, "a.git": true, ".gi\u0307t": true, ".git\u00a0": true, "\xff\xfe": true, "a\nb": true, " ": true, "...": true,
		"a\\b": true, "gi~": true, "git~": true,
	} {
		require.Equal(t, git, holdable(name), "%q", name)
		file, err := os.Create(filepath.Join(t.TempDir(), "p"))
		require.NoError(t, err)
		p := newPack(file, 40)
		blob, err := p.addText(kindBlob, []byte("x"))
		require.NoError(t, err)
		_, err = p.addText(kindTree, treeText([]entry{{modeFile, name, blob}}))
		require.NoError(t, err)
		text, _ := p.reader()
		c := exec.Command("git", "index-pack", "--strict", "--stdin")
		c.Dir, c.Stdin = dir, text
		out, err := c.CombinedOutput()
		require.Equal(t, git, err == nil, "%q: %s", name, out)
	}
	for _, name := range []string{".gitmodules", ".GITMODULES", ".gitattributes ", ".git\u200cmodules", "a\\.gitmodules"} {
		require.True(t, judged(name), "%q", name)
	}
	for _, name := range []string{"gitmod~1", "GI7EBA~1", "gi7d29~2", "gitatt~4"} {
		require.False(t, holdable(name), "%q", name)
	}
}

// A class of characters is as short as its ranges: what an agent writes in four bytes does not take a thousand.
func TestAClassIsWrittenAsRanges(t *testing.T) {
	t.Parallel()
	for class, want := range map[string]string{
		"[!a]":   `[\x{0}-\x{2e}\x{30}-\x{60}\x{62}-\x{ff}]`,
		"[a-c]":  `[\x{61}-\x{63}]`,
		"[ab-]":  `[\x{2d}\x{61}-\x{62}]`,
		"[.-1]":  `[\x{2e}\x{30}-\x{31}]`,
		"[/]":    `[^\x{0}-\x{10ffff}]`,
		"[\xff]": `[\x{ff}]`,
	} {
		got, ok := translate(class)
		require.True(t, ok, class)
		require.Equal(t, want, got, class)
	}
}
