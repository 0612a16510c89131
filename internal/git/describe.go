package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ErrNoRepository says that a path is in no repository.
var ErrNoRepository = errors.New("not in a git repository")

// A Repository is what there is at a path of an operator.
type Repository struct {
	Objects
	Top     string // of the working tree; "" of a bare repository
	Head    string // the commit that is checked out; "" where there is none yet
	Shallow bool   // its history has an artificial end
	Partial bool   // objects may be missing, which git would get from a remote
	work    Call   // how git is run in it
}

// Describe looks what repository a path is in, and what state that is in.
func (g *Git) Describe(ctx context.Context, path string) (*Repository, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, fmt.Errorf("%s is no directory", path)
	}
	r := &Repository{work: Call{Dir: path}}
	ask := func(args ...string) string {
		if err != nil {
			return ""
		}
		var text string
		c := r.work
		c.Args = append([]string{"rev-parse"}, args...)
		text, err = g.line(ctx, c)
		return text
	}
	r.GitDir = ask("--absolute-git-dir")
	if failed, ok := errors.AsType[*Failed](err); ok && strings.Contains(failed.Said, "not a git repository") {
		return nil, fmt.Errorf("%s: %w", path, ErrNoRepository)
	}
	r.Dir = ask("--path-format=absolute", "--git-path", "objects")
	r.Shallow = ask("--is-shallow-repository") == "true"
	if ask("--is-inside-work-tree") == "true" {
		r.Top = ask("--show-toplevel")
		r.work.Dir = r.Top
	}
	if err != nil {
		return nil, fmt.Errorf("looking at the repository of %s: %w", path, err)
	}
	r.Head, _ = g.commit(ctx, r, "HEAD")
	partial := r.work
	partial.Args = []string{"config", "--get-regexp", `^(extensions\.partialclone|remote\..*\.promisor)$`}
	text, _ := g.Output(ctx, partial)
	r.Partial = text != ""
	return r, nil
}

// commit resolves a name, as "main" or "HEAD~2", to a commit.
func (g *Git) commit(ctx context.Context, r *Repository, ref string) (string, error) {
	c := r.work
	c.Args = []string{"rev-parse", "--verify", "--quiet", "--end-of-options", ref + "^{commit}"}
	id, err := g.line(ctx, c)
	if _, ok := errors.AsType[*Failed](err); ok {
		return "", fmt.Errorf("%s has no commit %.200q", r.where(), ref)
	}
	return id, err
}

func (r *Repository) where() string {
	if r.Top != "" {
		return r.Top
	}
	return r.GitDir
}
