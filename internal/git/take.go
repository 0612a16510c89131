package git

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spawnmesh/spawnmesh/internal/fsync"
)

// Errors of what is not taken. Nothing of it is in the repository then.
var (
	ErrTooLarge = errors.New("too large")
	ErrBad      = errors.New("its objects are not in order")
	ErrLacks    = errors.New("the repository does not have what it builds on")
)

// An Objects is where a repository has its objects.
type Objects struct {
	GitDir string // of the repository
	Dir    string // of its objects; "" for "objects" in GitDir
}

func (o Objects) dir() string {
	if o.Dir != "" {
		return o.Dir
	}
	return filepath.Join(o.GitDir, "objects")
}

// A Parcel is what is to be taken into a repository.
type Parcel struct {
	Pack  io.Reader // the objects, in git's format
	Most  int64     // bytes of Pack
	Tips  []string  // must be there with all that belongs to them
	Known []string  // commits, or "--all": what belongs to these is there
	// Accept may refuse what is checked and complete; its runs of git see the objects by env. nil accepts.
	Accept func(ctx context.Context, env []string) error
}

// Drafts is how names of what is unfinished begin, beside the objects of a repository; git prune removes what is called so and is old.
const Drafts = "tmp_objdir-spawnmesh-"

// Take checks objects, and makes them part of a repository when all of them are in order. No ref is changed.
func (g *Git) Take(ctx context.Context, o Objects, p Parcel) error {
	draft, err := os.MkdirTemp(o.dir(), Drafts)
	if err != nil {
		return fmt.Errorf("taking in objects: %w", err)
	}
	defer os.RemoveAll(draft)
	env := []string{"GIT_OBJECT_DIRECTORY=" + draft, "GIT_ALTERNATE_OBJECT_DIRECTORIES=" + quoted(o.dir())}
	if err := g.unpack(ctx, Call{GitDir: o.GitDir, Env: env}, p); err != nil {
		return err
	}
	if err := g.sizes(ctx, o.GitDir, draft); err != nil {
		return err
	}
	if err := g.complete(ctx, Call{GitDir: o.GitDir, Env: env}, p); err != nil {
		return err
	}
	if p.Accept != nil {
		if err := p.Accept(ctx, env); err != nil {
			return err
		}
	}
	return migrate(draft, o.dir())
}

// lenient are faults of old histories that harm nobody; all else that git warns of is an error here.
const lenient = "zeroPaddedFilemode=ignore,missingSpaceBeforeDate=ignore,missingSpaceBeforeEmail=ignore,missingNameBeforeEmail=ignore,missingEmail=ignore,badEmail=ignore,badTimezone=ignore,zeroPaddedDate=ignore"

// unpack has git check each object, and the links between them.
func (g *Git) unpack(ctx context.Context, c Call, p Parcel) error {
	in := &metered{from: p.Pack, left: p.Most}
	c.Args = []string{"index-pack", "--stdin", "--fix-thin", "--strict=" + lenient}
	c.In = in
	err := g.Run(ctx, c)
	if in.err != nil {
		return fmt.Errorf("reading objects: %w", in.err)
	}
	return bad(err)
}

// bad is err as that of objects that git has refused, unless the disk of this host has kept it from taking them.
func bad(err error) error {
	if failed, ok := errors.AsType[*Failed](err); ok && failed.Unwrap() == nil {
		return fmt.Errorf("%w: %w", ErrBad, failed)
	}
	return err
}

// Bounds of objects that are held in memory where they are read, here and by git. Blobs are streamed.
const (
	CommitMost = 1 << 20
	TreeMost   = 64 << 20
)

// sizes refuses a commit, a tag or a tree that is larger than any that is read.
func (g *Git) sizes(ctx context.Context, gitDir, draft string) error {
	ctx, enough := context.WithCancelCause(ctx)
	defer enough(nil)
	most := map[string]int64{"commit": CommitMost, "tag": CommitMost, "tree": TreeMost}
	out := &records{end: '\n', each: func(line []byte) {
		var kind string
		var size int64
		if _, err := fmt.Sscan(string(line), &kind, &size); err == nil && most[kind] > 0 && size > most[kind] {
			enough(fmt.Errorf("%w: it has a %s of %d bytes, limit %d", ErrTooLarge, kind, size, most[kind]))
		}
	}}
	c := Call{GitDir: gitDir, Env: []string{"GIT_OBJECT_DIRECTORY=" + draft}, Args: []string{"cat-file", "--batch-check=%(objecttype) %(objectsize)", "--batch-all-objects", "--unordered"}, Out: out}
	err := g.Run(ctx, c)
	if cause := context.Cause(ctx); errors.Is(cause, ErrTooLarge) {
		return cause
	}
	return err
}

// complete asks whether all that belongs to the tips is there.
func (g *Git) complete(ctx context.Context, c Call, p Parcel) error {
	c.Args = append([]string{"rev-list", "--objects", "--quiet"}, p.Tips...)
	c.Args = append(append(c.Args, "--not"), p.Known...)
	err := g.Run(ctx, c)
	return bad(err)
}

// migrate moves packs to where git finds them; the index last, since a pack without one is not looked at. A pack has the name
// of its content, so that it may be there already.
func migrate(draft, objects string) error {
	from, to := filepath.Join(draft, "pack"), filepath.Join(objects, "pack")
	list, err := os.ReadDir(from)
	if err != nil {
		return fmt.Errorf("taking in objects: %w", err)
	}
	slices.SortStableFunc(list, func(a, b os.DirEntry) int { return last(a.Name()) - last(b.Name()) })
	for _, f := range list {
		if err := os.Rename(filepath.Join(from, f.Name()), filepath.Join(to, f.Name())); err != nil {
			return fmt.Errorf("taking in objects: %w", err)
		}
	}
	return fsync.Dir(to)
}

func last(name string) int {
	if filepath.Ext(name) == ".idx" {
		return 1
	}
	return 0
}

// TakeBundle takes in a bundle of at most so many bytes. judge sees the header before any object is read, and says what is
// known and what is asked of the whole; the tips are those of the header.
func (g *Git) TakeBundle(ctx context.Context, o Objects, r io.Reader, most int64, judge func(Header) (Parcel, error)) error {
	in := &metered{from: r, left: most}
	buf := bufio.NewReaderSize(in, 64<<10)
	h, err := ReadHeader(buf)
	if err != nil {
		return errors.Join(in.err, err)
	}
	p, err := judge(h)
	if err != nil {
		return err
	}
	if err := g.has(ctx, o, h.Needs); err != nil {
		return err
	}
	p.Pack, p.Most, p.Tips = buf, most, slices.Sorted(maps.Values(h.Refs))
	return g.Take(ctx, o, p)
}

// has asks for commits.
func (g *Git) has(ctx context.Context, o Objects, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	c := Call{GitDir: o.GitDir, Args: []string{"cat-file", "--batch-check=%(objecttype)"}, In: strings.NewReader(strings.Join(ids, "\n") + "\n")}
	text, err := g.Output(ctx, c)
	if err != nil {
		return err
	}
	for i, kind := range strings.Split(strings.TrimSpace(text), "\n") {
		if kind != "commit" {
			return fmt.Errorf("%w: there is no commit %s", ErrLacks, ids[min(i, len(ids)-1)])
		}
	}
	return nil
}

// Sweep removes what a process that was killed has left of a take. Nobody else may take at this moment.
func Sweep(o Objects) error {
	list, err := os.ReadDir(o.dir())
	for _, f := range list {
		if strings.HasPrefix(f.Name(), Drafts) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(o.dir(), f.Name())))
		}
	}
	return err
}

// metered ends with an error behind so many bytes, and keeps the error that it ended with.
type metered struct {
	from io.Reader
	left int64
	err  error
}

func (m *metered) Read(b []byte) (int, error) {
	b = b[:min(int64(len(b)), max(m.left, 0)+1)]
	n, err := m.from.Read(b)
	m.left -= int64(n)
	if m.left < 0 {
		err = fmt.Errorf("%w: more bytes than may come", ErrTooLarge)
	}
	if err != nil && err != io.EOF {
		m.err = err
	}
	return n, err
}

// quoted is a path as git reads it from a list of them.
func quoted(path string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(path) + `"`
}

func sorted(refs map[string]string) []string { return slices.Sorted(maps.Keys(refs)) }
