package worktree

import (
	"context"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/spawnmesh/spawnmesh/internal/git"
)

// headMost bounds what is read of a file that names a commit.
const headMost = 1024

// Head is the commit that HEAD of an agent's .git names, read as data; "" where that cannot be told. No link is followed. All processes of the
// attempt must have ended.
func Head(work string) string {
	root, err := os.OpenRoot(work)
	if err != nil {
		return ""
	}
	defer root.Close()
	if ref, is := strings.CutPrefix(smallFile(root, ".git/HEAD"), "ref: "); is {
		return commitOf(root, ref)
	} else if git.IsID(ref) {
		return ref
	}
	return ""
}

// commitOf is the commit that a ref of a .git names, "" where that cannot be told.
func commitOf(root *os.Root, ref string) string {
	if !strings.HasPrefix(ref, "refs/") || path.Clean(ref) != ref {
		return ""
	}
	if id := smallFile(root, ".git/"+ref); git.IsID(id) {
		return id
	}
	if _, err := root.Lstat(".git/" + ref); err == nil {
		return ""
	}
	var found string
	_ = eachPacked(root, func(id, name string) {
		if name == ref {
			found = id
		}
	})
	return found
}

// smallFile is what a small file says; "" of anything else, and of one behind a link.
func smallFile(root *os.Root, name string) string {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if info, err := root.Lstat(dir); err != nil || !info.IsDir() {
			return ""
		}
	}
	info, err := root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > headMost {
		return ""
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	text := make([]byte, headMost)
	n, _ := f.Read(text)
	return strings.TrimSpace(string(text[:n]))
}

// Took reports whether a commit is in the repository, and among those of a tip: nothing of it has to be taken. Of "" nobody knows.
func (r *Repo) Took(ctx context.Context, id, tip string) bool {
	if !git.IsID(id) || len(id) != len(tip) {
		return false
	}
	ok, err := r.git.Follows(ctx, git.Call{GitDir: r.dir}, id, tip)
	return err == nil && ok
}

// Untaken counts the names of commits in an agent's .git of which the commits up to tip may lack something: its branch spawnmesh/NAME where the
// agent has left another one checked out, and all names but that. An error says that it cannot be told.
func (r *Repo) Untaken(ctx context.Context, work, name, tip string) (int, error) {
	n, err := others(work, name)
	if err != nil {
		return n, err
	}
	root, err := os.OpenRoot(work)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	own := git.Branches + name
	_, loose := root.Lstat(".git/" + own)
	packed := false
	if err := eachPacked(root, func(_, ref string) { packed = packed || ref == own }); err != nil {
		return 0, err
	}
	if (packed || loose == nil) && !r.Took(ctx, commitOf(root, own), tip) {
		n++
	}
	return n, nil
}

// eachPacked calls do for each ref in packed-refs.
func eachPacked(root *os.Root, do func(id, ref string)) error {
	text, err := readPacked(root)
	if err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		if id, ref, ok := strings.Cut(strings.TrimSpace(line), " "); ok && git.IsID(id) {
			do(id, ref)
		}
	}
	return nil
}
