package tartree

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
)

// Errors of streams that are not taken. What was made before stays: the directory is to be removed.
var (
	ErrBad      = errors.New("no stream of a directory that is taken")
	ErrTooLarge = errors.New("too large")
	ErrTooMany  = errors.New("too many entries")
)

// Bounds are what a stream may make.
type Bounds struct {
	Entries int64 // files, directories and links
	Bytes   int64 // of all files
}

// Untar makes what a stream says in an empty directory. It takes directories, files and links that stay in the directory, each once and
// behind the directory that it is in; files are 0644 or 0755 and belong to the user of this process.
func Untar(ctx context.Context, r io.Reader, dir string, bounds Bounds) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	u := &reader{root: root, in: tar.NewReader(&patient{ctx, r}), bounds: bounds, made: map[string]bool{".": true}}
	for {
		h, err := u.in.Next()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = u.entry(h)
		} else if ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", ErrBad, err)
		}
		if err != nil {
			return fmt.Errorf("unpacking into %s: %w", dir, err)
		}
	}
}

type reader struct {
	root   *os.Root
	in     *tar.Reader
	bounds Bounds
	made   map[string]bool // directories of ours: nothing in the way to what is made below them is a link
}

func (u *reader) entry(h *tar.Header) error {
	name := h.Name
	if h.Typeflag == tar.TypeDir {
		name = strings.TrimSuffix(name, "/")
	}
	if u.bounds.Entries--; u.bounds.Entries < 0 {
		return fmt.Errorf("%w: it has more than may be", ErrTooMany)
	}
	if len(name) > nameMost || name == "" || name == "." || path.IsAbs(name) || path.Clean(name) != name || name == ".." || strings.HasPrefix(name, "../") || strings.ContainsRune(name, 0) || !u.made[path.Dir(name)] {
		return fmt.Errorf("%w: %.200q is no name of an entry, or of none in a directory before it", ErrBad, h.Name)
	}
	if sparse(h) {
		return fmt.Errorf("%w: %.200q has holes: what it takes is not what it brings", ErrBad, name)
	}
	var err error
	switch h.Typeflag {
	case tar.TypeDir:
		u.made[name] = true
		err = u.root.Mkdir(name, 0o755)
	case tar.TypeReg:
		return u.file(h, name)
	case tar.TypeSymlink:
		if !stays(name, h.Linkname) {
			return fmt.Errorf("%w: the link %.200q leads out of it, or may", ErrBad, name)
		}
		err = u.root.Symlink(h.Linkname, name)
	default:
		return fmt.Errorf("%w: %.200q is neither a file nor a directory nor a symbolic link", ErrBad, name)
	}
	return twice(err)
}

// nameMost is how long a name may be: Linux opens none that is longer.
const nameMost = 4096

// sparse reports whether an entry has holes, in any of GNU's ways to say so: a few bytes of them may be a file of any size.
func sparse(h *tar.Header) bool {
	if h.Typeflag == tar.TypeGNUSparse {
		return true
	}
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// twice says of a name that is there already that the stream has it twice: on this file system, names of another case may be the same.
func twice(err error) error {
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%w: it is there already: %w", ErrBad, err)
	}
	return err
}

func (u *reader) file(h *tar.Header, name string) error {
	if h.Size > u.bounds.Bytes {
		return fmt.Errorf("%w: with %.200q it has more bytes than may be", ErrTooLarge, name)
	}
	u.bounds.Bytes -= h.Size
	mode := os.FileMode(0o644)
	if h.Mode&0o100 != 0 {
		mode = 0o755
	}
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return twice(err)
	}
	_, err = io.Copy(f, u.in)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: it ends in the middle of %.200q", ErrBad, name)
	}
	return errors.Join(err, f.Chmod(mode), f.Close()) // whatever the umask of this process
}
