package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// An Input is what BundleTree has written.
type Input struct {
	Tip     string   // the commit that an agent begins with
	Origin  string   // the last commit of it that the repository has: Tip, or what the uncommitted files were put on
	Size    int64    // bytes of the bundle
	Changed int      // how many files Tip has otherwise than Origin, or does not have
	Behind  int      // how many uncommitted files of the commit that is checked out are not in it
	Without []string // what is not in it: directories of submodules and of repositories within the tree; at most 1,000
}

// BundleTree writes a bundle of a commit of the repository that path is in, as InputRef; ref "" is HEAD. With dirty there is a commit
// more on top of HEAD where the files differ from it: what "git add --all" would make of them. The same files on the same commit
// are the same commit again.
//
// The repository is read alone: index, refs and objects stay as they are. Shallow and partial clones lack what a bundle has to
// have, and are refused.
func (g *Git) BundleTree(ctx context.Context, path, ref string, dirty bool, w io.Writer) (in Input, err error) {
	g = g.Operator()
	r, err := g.Describe(ctx, path)
	if err != nil {
		return in, err
	}
	if in.Tip, err = g.origin(ctx, r, ref, dirty); err != nil {
		return in, err
	}
	in.Origin = in.Tip
	c := r.work
	if !dirty && in.Tip == r.Head && r.Top != "" {
		if err := g.behind(ctx, c, &in); err != nil {
			return in, fmt.Errorf("counting the uncommitted files of %s: %w", r.Top, err)
		}
	}
	if dirty {
		temp, err := os.MkdirTemp("", "spawnmesh-git-")
		if err != nil {
			return in, err
		}
		defer os.RemoveAll(temp)
		c.Env = []string{"GIT_INDEX_FILE=" + filepath.Join(temp, "index"), "GIT_OBJECT_DIRECTORY=" + temp, "GIT_ALTERNATE_OBJECT_DIRECTORIES=" + quoted(r.dir())}
		if in.Tip, err = g.uncommitted(ctx, r, c, &in); err != nil {
			return in, fmt.Errorf("reading the uncommitted files of %s: %w", r.Top, err)
		}
	}
	if err := g.whole(ctx, r, c, in.Tip); err != nil {
		return in, err
	}
	h := Header{Refs: map[string]string{InputRef: in.Tip}}
	if in.Origin != in.Tip {
		h.Refs[OriginRef] = in.Origin
	}
	count := &counter{to: w}
	err = g.Bundle(ctx, c, h, count)
	in.Size = count.n
	return in, err
}

// ErrNoCommit says that a repository has no commit yet: what an agent would leave could build on nothing that is there.
var ErrNoCommit = errors.New("it has no commit yet")

// origin is the commit that a bundle is to be of, or to begin at.
func (g *Git) origin(ctx context.Context, r *Repository, ref string, dirty bool) (string, error) {
	switch {
	case r.Shallow:
		return "", fmt.Errorf("%s is a shallow clone, which has no whole history to send: get it with \"git fetch --unshallow\"", r.where())
	case dirty && r.Top == "":
		return "", fmt.Errorf("%s has no working tree, and so no uncommitted files", r.where())
	case r.Head == "" && (ref == "" || dirty):
		return "", fmt.Errorf("%s: %w: make one first, as with \"git commit --allow-empty -m begin\"", r.where(), ErrNoCommit)
	case ref == "":
		return r.Head, nil
	}
	tip, err := g.commit(ctx, r, ref)
	if err == nil && dirty && tip != r.Head {
		err = fmt.Errorf("the uncommitted files of %s are on HEAD, which is another commit than %.200q: send one or the other", r.Top, ref)
	}
	return tip, err
}

// whole refuses a tip of which a partial clone has not got all objects.
func (g *Git) whole(ctx context.Context, r *Repository, c Call, tip string) error {
	if !r.Partial {
		return nil
	}
	n := 0
	c.Args, c.Out = []string{"rev-list", "--objects", "--missing=print", "--no-object-names", tip}, &records{end: '\n', each: func(line []byte) {
		if bytes.HasPrefix(line, []byte("?")) {
			n++
		}
	}}
	if err := g.Run(ctx, c); err != nil {
		return err
	}
	if n > 0 {
		return fmt.Errorf("%s is a partial clone, and lacks %d objects of what is to be sent: get them with \"git fetch --refetch --no-filter\"", r.where(), n)
	}
	return nil
}

// uncommitted makes a commit of the files of a working tree, on top of HEAD; where they are those of HEAD that is the answer. What it
// writes goes where the call says.
func (g *Git) uncommitted(ctx context.Context, r *Repository, c Call, in *Input) (string, error) {
	if err := g.copyIndex(ctx, r, c); err != nil {
		return "", err
	}
	run := func(in io.Reader, args ...string) (string, error) {
		c.Args, c.In = args, in
		return g.line(ctx, c)
	}
	if _, err := run(nil, "add", "--update"); err != nil {
		return "", err
	}
	untracked, err := g.untracked(ctx, c, in)
	if err != nil {
		return "", err
	}
	if _, err := run(untracked, "update-index", "--add", "-z", "--stdin"); err != nil {
		return "", err
	}
	if err := g.submodules(ctx, c, in); err != nil {
		return "", err
	}
	tree, err := run(nil, "write-tree")
	if err != nil {
		return "", err
	}
	was, err := run(nil, "rev-parse", r.Head+"^{tree}")
	if err != nil || was == tree {
		return r.Head, err
	}
	date, err := run(nil, "show", "-s", "--format=%ct", r.Head)
	if err == nil {
		err = g.count(ctx, c, in, "diff-tree", "-r", "-z", "--name-only", was, tree)
	}
	if err != nil {
		return "", err
	}
	return g.commitTree(ctx, c, tree, r.Head, date+" +0000")
}

// behind counts the files that a bundle with dirty would have otherwise.
func (g *Git) behind(ctx context.Context, c Call, in *Input) error {
	c.Args = []string{"status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--ignore-submodules=all"}
	c.Out = &records{each: func(line []byte) {
		if !bytes.HasSuffix(line, []byte("/")) { // that is a repository within the tree
			in.Behind++
		}
	}}
	return g.Run(ctx, c)
}

// count notes how many files git names.
func (g *Git) count(ctx context.Context, c Call, in *Input, args ...string) error {
	c.Args, c.In, c.Out = args, nil, &records{each: func([]byte) { in.Changed++ }}
	return g.Run(ctx, c)
}

// untracked lists files that "git add --all" would add, each with a zero byte behind it. It would add repositories within the tree as
// submodules, without their files.
func (g *Git) untracked(ctx context.Context, c Call, in *Input) (io.Reader, error) {
	files := &bytes.Buffer{}
	c.Args, c.Out = []string{"ls-files", "--others", "--exclude-standard", "-z"}, &records{each: func(name []byte) {
		if bytes.HasSuffix(name, []byte("/")) {
			in.lacks(string(name[:len(name)-1]))
			return
		}
		files.Write(append(name, 0))
	}}
	return files, g.Run(ctx, c)
}

func (g *Git) commitTree(ctx context.Context, c Call, tree, parent, date string) (string, error) {
	for _, who := range []string{"AUTHOR", "COMMITTER"} {
		c.Env = append(c.Env, "GIT_"+who+"_NAME=spawnmesh", "GIT_"+who+"_EMAIL=spawnmesh@localhost", "GIT_"+who+"_DATE=@"+date)
	}
	c.Args = []string{"commit-tree", "--no-gpg-sign", "-m", "spawnmesh: uncommitted files", tree, "-p", parent}
	return g.line(ctx, c)
}

// copyIndex begins with a copy of the index: it knows which files have not changed since it was written.
func (g *Git) copyIndex(ctx context.Context, r *Repository, c Call) error {
	ask := r.work
	ask.Args = []string{"rev-parse", "--path-format=absolute", "--git-path", "index"}
	path, err := g.line(ctx, ask)
	if err != nil {
		return err
	}
	from, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.Create(strings.TrimPrefix(c.Env[0], "GIT_INDEX_FILE="))
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	info, statErr := from.Stat()
	if err = errors.Join(err, to.Close(), statErr); err != nil {
		return err
	}
	return os.Chtimes(to.Name(), info.ModTime(), info.ModTime()) // files that are not older are looked at again
}

// submodules notes those of the index.
func (g *Git) submodules(ctx context.Context, c Call, in *Input) error {
	c.Args, c.In = []string{"ls-files", "--stage", "-z"}, nil
	c.Out = &records{each: func(record []byte) {
		if rest, is := bytes.CutPrefix(record, []byte("160000 ")); is {
			_, name, _ := bytes.Cut(rest, []byte("\t"))
			in.lacks(string(name))
		}
	}}
	return g.Run(ctx, c)
}

const withoutMost = 1000

func (in *Input) lacks(name string) {
	if len(in.Without) < withoutMost {
		in.Without = append(in.Without, name)
	}
}
