package worktree

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/internal/git"
)

// Bounds of files that git looks into.
const (
	probesMost = 200
	probedMost = 1 << 20
)

var errProbed = errors.New("it would be taken")

// probe asks git whether it takes a tree with this file, of which nothing is kept: it refuses some .gitmodules and .gitattributes for what they
// say, and all else with them.
func (c *collector) probe(f *folder, e entry) (Reason, error) {
	if c.probes++; c.probes > probesMost {
		return Refused, nil
	}
	text, err := c.small(f, e)
	if err != nil || text == nil {
		return Refused, err
	}
	file, err := os.CreateTemp(c.repo.objectsDir(), git.Drafts)
	if err != nil {
		return "", err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	p := newPack(file, c.pack.digits)
	blob, err := p.addText(kindBlob, text)
	if err != nil {
		return "", err
	}
	tree, err := p.addText(kindTree, treeText([]entry{{e.mode, e.name, blob}}))
	if err != nil {
		return "", err
	}
	all, size := p.reader()
	err = c.repo.git.Take(c.ctx, c.repo.objects(), git.Parcel{Pack: all, Most: size, Tips: []string{tree.String()}, Accept: func(context.Context, []string) error { return errProbed }})
	switch {
	case errors.Is(err, errProbed):
		return "", nil
	case errors.Is(err, git.ErrBad):
		return Refused, nil
	}
	return "", err
}

// small is what a file of a few bytes or a link says; nil of a larger one.
func (c *collector) small(f *folder, e entry) ([]byte, error) {
	if e.mode == modeLink {
		to := make([]byte, unix.PathMax+1)
		n, err := unix.Readlinkat(int(f.file.Fd()), e.name, to)
		return to[:max(n, 0)], err
	}
	fd, err := unix.Openat(int(f.file.Fd()), e.name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), e.name)
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, probedMost+1))
	if err != nil || len(text) > probedMost {
		return nil, err
	}
	return text, nil
}

// patient reads until its context ends.
type patient struct {
	ctx  context.Context
	from io.Reader
}

func (p *patient) Read(b []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	return p.from.Read(b)
}
