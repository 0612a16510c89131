// Package tartree makes a stream of a plain directory, and a directory of such a stream.
//
// The same files make the same stream: names are in order, and owners, times and all of a mode but the right to execute are left out. A
// stream may come from anybody: what is made of it stays within its directory, and so does every link in it.
package tartree

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// ErrSpecial says that there is something that no stream can have: a pipe, a socket, a device.
var ErrSpecial = errors.New("neither a file nor a directory nor a link")

// Tar writes a directory with all that is in it. Symbolic links that lead out of it are left out, and returned by name: what they lead to is
// not there where the stream goes. What is neither a file nor a directory nor a link is [ErrSpecial].
func Tar(ctx context.Context, dir string, w io.Writer) (without []string, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	t := &writer{ctx: ctx, root: root, out: tar.NewWriter(w)}
	if err := t.folder(""); err != nil {
		return nil, fmt.Errorf("reading %s: %w", dir, err)
	}
	return t.without, t.out.Close()
}

type writer struct {
	ctx     context.Context
	root    *os.Root
	out     *tar.Writer
	without []string
}

// folder writes what is in a directory: "" or with a slash at its end.
func (t *writer) folder(dir string) error {
	list, err := fs.ReadDir(t.root.FS(), path.Clean("./"+dir))
	if err != nil {
		return err
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range list {
		if err := t.ctx.Err(); err != nil {
			return err
		}
		if err := t.entry(dir+e.Name(), e.Type()); err != nil {
			return err
		}
	}
	return nil
}

func (t *writer) entry(name string, kind fs.FileMode) error {
	// GNU's format has names of any bytes and any length.
	h := &tar.Header{Format: tar.FormatGNU, Name: name, Mode: 0o644}
	switch kind {
	case 0:
		return t.file(h)
	case fs.ModeDir:
		h.Typeflag, h.Name, h.Mode = tar.TypeDir, name+"/", 0o755
		if err := t.out.WriteHeader(h); err != nil {
			return err
		}
		return t.folder(h.Name)
	case fs.ModeSymlink:
		to, err := t.root.Readlink(name)
		if err != nil {
			return err
		}
		if !stays(name, to) {
			t.without = append(t.without, name)
			return nil
		}
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, to, 0o777
		return t.out.WriteHeader(h)
	}
	return fmt.Errorf("%q is %w: remove it, or name a directory without it", name, ErrSpecial)
}

func (t *writer) file(h *tar.Header) error {
	f, err := t.root.Open(h.Name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%q changed while it was read", h.Name)
	}
	if info.Mode()&0o100 != 0 {
		h.Mode = 0o755
	}
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := t.out.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.Copy(t.out, &patient{t.ctx, io.LimitReader(f, h.Size)})
	if err == nil && n != h.Size {
		err = fmt.Errorf("%q changed while it was read", h.Name)
	}
	return err
}

// stays reports whether a symbolic link leads nowhere out of a tree of which every link stays. It goes up at its beginning only, where the
// way down is known, and no further than the tree: behind another link it could be anywhere.
func stays(name, to string) bool {
	if to == "" || path.IsAbs(to) || strings.ContainsRune(to, 0) {
		return false
	}
	up, down := 0, false
	for part := range strings.SplitSeq(to, "/") {
		switch part {
		case "", ".":
		case "..":
			up++
			if down {
				return false
			}
		default:
			down = true
		}
	}
	return up <= strings.Count(name, "/")
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
