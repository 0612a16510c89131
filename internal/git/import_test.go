package git_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/internal/git"
)

const (
	most   = 1 << 30
	branch = git.Branches + "t1"
)

// result bundles what follows on base in a repository, as the branch of a task.
func result(t *testing.T, dir, base, tip string) []byte {
	t.Helper()
	var out bytes.Buffer
	h := git.Header{Needs: []string{base}, Refs: map[string]string{branch: tip}}
	require.NoError(t, find(t).Bundle(t.Context(), git.Call{GitDir: dir + "/.git"}, h, &out))
	return out.Bytes()
}

// claimed is the work that a bundle says to be.
func claimed(text []byte) git.Work {
	w := git.Work{Bundle: bytes.NewReader(text), Most: most, Branch: branch}
	for line := range strings.Lines(string(text)) {
		if line == "\n" { // the end of the header
			break
		}
		id, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if need, is := strings.CutPrefix(id, "-"); is {
			w.Base = need
		} else if name == branch {
			w.Tip = id
		}
	}
	return w
}

func take(t *testing.T, dir string, text []byte) (git.Import, error) {
	t.Helper()
	return find(t).Import(t.Context(), dir, claimed(text))
}

// leftovers are drafts of objects.
func leftovers(t *testing.T, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(dir + "/.git/objects/tmp_*")
	require.NoError(t, err)
	return list
}

func TestABundleBecomesABranch(t *testing.T) {
	t.Parallel()
	dir := repo(t, "")
	base := sh(t, dir, "git rev-parse HEAD")
	agent := t.TempDir()
	sh(t, dir, "git clone -q . "+agent+"/w")
	agent += "/w"
	one := sh(t, agent, "echo 1 > new && git add new && git commit -qm one && git rev-parse HEAD")
	two := sh(t, agent, "echo 2 > new && git commit -qam two && git rev-parse HEAD")
	other := sh(t, agent, "git checkout -q "+base+" && echo 3 > new && git add new && git commit -qm other && git rev-parse HEAD")
	sh(t, dir, "echo dirt > a; echo staged > s; git add s")
	others := sh(t, dir, "git status --porcelain; cat .git/HEAD; git for-each-ref refs/heads/main refs/tags")

	got, err := take(t, dir, result(t, agent, base, one))
	require.NoError(t, err)
	require.Equal(t, git.Import{Branch: branch, Tip: one}, got)
	require.Equal(t, "1", sh(t, dir, "git show spawnmesh/t1:new"))
	got, err = take(t, dir, result(t, agent, base, one))
	require.NoError(t, err)
	require.Equal(t, one, got.Was, "a repeat changes nothing")
	got, err = take(t, dir, result(t, agent, base, two))
	require.NoError(t, err)
	require.Equal(t, git.Import{Branch: branch, Tip: two, Was: one}, got)

	for _, tip := range []string{other, one} {
		_, err = take(t, dir, result(t, agent, base, tip))
		require.ErrorIs(t, err, git.ErrDiverged)
	}
	require.Equal(t, two, sh(t, dir, "git rev-parse spawnmesh/t1"))
	require.Equal(t, others, sh(t, dir, "git status --porcelain; cat .git/HEAD; git for-each-ref refs/heads/main refs/tags"))
	sh(t, dir, "git fsck --strict && ! git cat-file -e "+other+" && git worktree add -q "+agent+"-2 spawnmesh/t1")
	three := sh(t, agent, "git checkout -q "+two+" && echo 4 > new && git commit -qam three && git rev-parse HEAD")
	_, err = take(t, dir, result(t, agent, base, three))
	require.ErrorContains(t, err, "in "+agent+"-2")
	require.ErrorIs(t, err, git.ErrCheckedOut)
	require.Empty(t, leftovers(t, dir))
	require.NoFileExists(t, home+"/canary")
}

func TestWhatIsNoGoodBundleIsNotTaken(t *testing.T) {
	t.Parallel()
	dir := repo(t, "")
	base := sh(t, dir, "git rev-parse HEAD")
	agent := filepath.Join(t.TempDir(), "w")
	sh(t, dir, "git clone -q . "+agent)
	tip := sh(t, agent, "echo 1 > new && git add new && git commit -qm one && git rev-parse HEAD")
	good := result(t, agent, base, tip)
	tree := func(entry string) []byte { // of a name that git itself would not write
		script := `of=$(echo evil | git hash-object -w --stdin)
case "$ENTRY" in 40000*) of=$(printf "100644 blob $of\tx\n" | git mktree);; esac
tree=$({ printf '%s\0' "$ENTRY"; printf "$(echo $of | sed 's/../\\x&/g')"; } | git hash-object -t tree --literally -w --stdin)
git commit-tree -p ` + base + ` -m evil $tree`
		require.NoError(t, os.WriteFile(agent+"/script", []byte(script), 0o600))
		return result(t, agent, base, sh(t, agent, "ENTRY='"+entry+"' bash -e script"))
	}
	header := func(from, to string) []byte { return bytes.Replace(good, []byte(from), []byte(to), 1) }
	flipped := bytes.Clone(good)
	flipped[len(flipped)-30] ^= 1
	for name, tt := range map[string]struct {
		text []byte
		want error
	}{
		"nothing":            {nil, git.ErrNoBundle},
		"text":               {[]byte("hello\nworld\n\n"), git.ErrNoBundle},
		"a header alone":     {good[:60], git.ErrNoBundle},
		"cut off":            {good[:len(good)-10], git.ErrBad},
		"a bit":              {flipped, git.ErrBad},
		"another branch":     {header("spawnmesh/t1", "spawnmesh/t2"), git.ErrNoBundle},
		"a branch of his":    {header(branch, "refs/heads/main"), git.ErrNoBundle},
		"a second branch":    {header("\n\n", "\n"+tip+" refs/heads/main\n\n"), git.ErrNoBundle},
		"the same twice":     {header("\n\n", "\n"+tip+" "+branch+"\n\n"), git.ErrNoBundle},
		"a filter":           {header("# v2 git bundle\n", "# v3 git bundle\n@filter=blob:none\n"), git.ErrNoBundle},
		"a tip that is not":  {header(tip+" ", strings.Repeat("1", 40)+" "), git.ErrBad},
		"an unknown base":    {header("-"+base, "-"+strings.Repeat("1", 40)), git.ErrLacks},
		"an endless line":    {[]byte("# v2 git bundle\n" + strings.Repeat("x", 2<<20)), git.ErrNoBundle},
		"a hook":             {tree("40000 .git"), git.ErrBad},
		"a file of git":      {tree("100644 .GIT"), git.ErrBad},
		"up":                 {tree("40000 .."), git.ErrBad},
		"a path":             {tree("100644 a/b"), git.ErrBad},
		"a name of Windows":  {tree("100644 git~1"), git.ErrBad},
		"a link .gitmodules": {tree("120000 .gitmodules"), git.ErrBad},
	} {
		_, err := take(t, dir, tt.text)
		require.ErrorIs(t, err, tt.want, name)
		require.Less(t, len(err.Error()), 4000)
	}
	cut := claimed(good)
	cut.Most = int64(len(good)) - 1
	_, err := find(t).Import(t.Context(), dir, cut)
	require.ErrorIs(t, err, git.ErrTooLarge)
	for _, name := range []string{"refs/heads/main", git.Branches + "a..b", git.Branches + "x y", "--x", git.Branches, "HEAD"} {
		named := claimed(good)
		named.Branch = name
		_, err := find(t).Import(t.Context(), dir, named)
		require.ErrorContains(t, err, "is no name of a branch", name)
	}
	require.Empty(t, leftovers(t, dir))
	require.Equal(t, "1", sh(t, dir, "git for-each-ref | wc -l; git fsck"))
	_, err = take(t, dir, good)
	require.NoError(t, err)
}

// Objects that are held in memory where they are read have a bound, wherever they come from; blobs have none.
func TestObjectsThatAreTooLargeAreNotTaken(t *testing.T) {
	t.Parallel()
	dir := repo(t, "head -c 9000000 /dev/urandom > blob; git add blob; git commit -qm blob")
	base := sh(t, dir, "git rev-parse HEAD~1")
	_, err := take(t, dir, result(t, dir, base, sh(t, dir, "git rev-parse HEAD")))
	require.NoError(t, err)
	large := sh(t, dir, "head -c 1048577 /dev/zero | tr '\\0' m | git commit-tree -p "+base+" HEAD^{tree}")
	_, err = take(t, dir, result(t, dir, base, large))
	require.ErrorIs(t, err, git.ErrTooLarge)
	require.ErrorContains(t, err, "it has a commit of 1048")
	b, err := find(t).Batch(t.Context(), dir+"/.git")
	require.NoError(t, err)
	_, _, err = b.Object(large, 1<<20)
	require.ErrorIs(t, err, git.ErrTooLarge)
	kind, _, err := b.Object(base, 1<<20)
	require.NoError(t, err, "the next one is read")
	require.Equal(t, "commit", kind)
	require.NoError(t, b.Close())
}

// A disk without room is no fault of what is taken.
func TestADiskWithoutRoomIsNoFaultOfObjects(t *testing.T) {
	t.Parallel()
	dir := repo(t, "head -c 900000 /dev/urandom > blob; git add blob; git commit -qm blob")
	_, text := bundle(t, dir, "", false)
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=600k"); err != nil {
		t.Logf("this process may mount nothing here (%v): a full disk is tried where it may", err)
		return
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	require.NoError(t, find(t).Init(t.Context(), disk+"/r", 40))
	all := func(git.Header) (git.Parcel, error) { return git.Parcel{}, nil }

	err := find(t).TakeBundle(t.Context(), git.Objects{GitDir: disk + "/r"}, bytes.NewReader(text), int64(len(text)), all)

	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NotErrorIs(t, err, git.ErrBad)
}

func TestWhatHasChangedIsShown(t *testing.T) {
	t.Parallel()
	dir := repo(t, "git config diff.external 'touch "+home+"/canary'; echo '* diff=x' > .gitattributes; git config diff.x.textconv 'touch "+home+"/canary; cat'; git add .; git commit -qm attributes; echo dirt > dirt")
	in, input := bundle(t, dir, "", true)
	agent := t.TempDir()
	require.NoError(t, os.WriteFile(agent+"/b", input, 0o600))
	tip := sh(t, agent, "git init -q w && cd w && git fetch -q ../b "+git.InputRef+" && git checkout -q FETCH_HEAD && echo more >> dirt && git mv a b && git commit -qam done && git rev-parse HEAD")
	work := result(t, agent+"/w", in.Origin, tip)

	var out strings.Builder
	before := state(t, dir)
	require.NoError(t, find(t).Diff(t.Context(), dir, claimed(work), &out))
	require.Contains(t, out.String(), " a => b ")
	require.Contains(t, out.String(), "\n+dirt\n+more\n")
	require.True(t, before == state(t, dir))
	require.NoFileExists(t, home+"/canary")
	_, err := take(t, dir, work)
	require.NoError(t, err, "what follows on uncommitted files comes with them")
}

// A spoke does not choose what its work is shown against: a bundle on another commit of the repository, or of another tip, is refused before
// a branch is written, and so is one that does not follow on its base.
func TestWorkBuildsOnWhatItsOrderSays(t *testing.T) {
	t.Parallel()
	dir := repo(t, "echo two > a; git commit -qam second")
	base, before := sh(t, dir, "git rev-parse HEAD"), sh(t, dir, "git rev-parse HEAD~1")
	tip := sh(t, dir, "git commit-tree -p "+base+" -m work HEAD^{tree}")
	aside := sh(t, dir, "git commit-tree -p "+before+" -m aside HEAD^{tree}")
	for name, tt := range map[string]struct {
		text      []byte
		base, tip string
	}{
		"on another commit":        {result(t, dir, before, tip), base, tip},
		"of another tip":           {result(t, dir, base, tip), base, aside},
		"that does not follow":     {result(t, dir, base, aside), base, aside},
		"on the base and another":  {bytes.Replace(result(t, dir, base, tip), []byte("-"), []byte("-"+before+" \n-"), 1), base, tip},
		"on nothing":               {bytes.Replace(result(t, dir, base, tip), []byte("-"+base+" \n"), nil, 1), base, tip},
		"on the tip of its branch": {result(t, dir, base, tip), tip, tip},
	} {
		w := git.Work{Bundle: bytes.NewReader(tt.text), Most: most, Branch: branch, Base: tt.base, Tip: tt.tip}
		_, err := find(t).Import(t.Context(), dir, w)
		require.ErrorIs(t, err, git.ErrOther, name)
		var shown strings.Builder
		w.Bundle = bytes.NewReader(tt.text)
		require.ErrorIs(t, find(t).Diff(t.Context(), dir, w, &shown), git.ErrOther, name)
		require.Empty(t, shown.String(), name)
		require.Empty(t, sh(t, dir, "git for-each-ref "+branch), name)
	}
	_, err := take(t, dir, result(t, dir, base, tip))
	require.NoError(t, err)
}
