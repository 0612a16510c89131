package supervisor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/internal/fsync"
)

// errSpoilt says that a file of an attempt cannot serve, and will not by itself:
// something else is in its place, or it may not be read, or it says what no shim
// writes. Its agent has done that, or somebody with the same user.
var errSpoilt = errors.New("nobody but the agent or its user has done that")

func spoilt(format string, args ...any) error {
	return fmt.Errorf("%w: %w", fmt.Errorf(format, args...), errSpoilt)
}

// openPlain opens a file of an attempt directory, which its agent may write to
// as long as both have the same user: neither a link nor a pipe in the place of
// the file leads or holds up the caller.
func openPlain(name string, flags int) (*os.File, error) {
	open := func() (*os.File, error) {
		return os.OpenFile(name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	}
	f, err := open()
	if errors.Is(err, fs.ErrPermission) && reopen(filepath.Dir(name)) {
		f, err = open()
	}
	switch {
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENOTDIR):
		return nil, spoilt("%s is not a regular file", name)
	case errors.Is(err, fs.ErrPermission):
		return nil, spoilt("%s may not be opened", name)
	case err != nil:
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if !info.Mode().IsRegular() {
		_ = f.Close()
		return nil, spoilt("%s is not a regular file", name)
	}
	return f, nil
}

// readPlain returns nothing when there is no such file.
func readPlain(name string, most int64) ([]byte, error) {
	f, err := openPlain(name, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		return nil, spoilt("%s has more than %d bytes", name, most)
	}
	return b, err
}

// ReadFile returns the file name of an attempt directory, and nothing where there
// is none. Its agent may have put anything in its place: what is no regular file,
// or has more than most bytes, is an error, and holds nobody up.
func ReadFile(dir, name string, most int64) ([]byte, error) {
	b, err := readPlain(filepath.Join(dir, name), most)
	if err != nil {
		return nil, fmt.Errorf("reading %s of the attempt in %s: %w", name, dir, err)
	}
	return b, nil
}

// replace makes a file of an attempt directory durable, by way of its draft: it is there as a
// whole, or as it was. What its agent has put in the place of either is taken away.
func replace(dir, name string, write func(f *os.File) error) error {
	name = filepath.Join(dir, name)
	draft := name + draftSuffix
	f, err := openPlain(draft, os.O_WRONLY|os.O_CREATE)
	if errors.Is(err, errSpoilt) && removeAll(draft) == nil {
		f, err = openPlain(draft, os.O_WRONLY|os.O_CREATE)
	}
	if err != nil {
		return err
	}
	if err = write(f); err == nil {
		var size int64
		size, err = f.Seek(0, io.SeekCurrent)
		err = errors.Join(err, f.Truncate(size), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(draft, name); err != nil && removeAll(name) == nil { // a directory
		err = os.Rename(draft, name)
	}
	if err != nil {
		return err
	}
	return fsync.Dir(dir)
}

// reopen gives a directory back the permissions that its agent took away, and
// reports whether that was so. The shim is in the directory: its path leads
// nowhere without them.
func reopen(dir string) bool {
	if dir == "." {
		dir = "/proc/self/cwd"
	}
	if unix.Access(dir, unix.R_OK|unix.W_OK|unix.X_OK) == nil {
		return false
	}
	err := os.Chmod(dir, 0o700)
	if errors.Is(err, fs.ErrPermission) {
		_ = os.Chmod(filepath.Dir(dir), 0o700)
		err = os.Chmod(dir, 0o700)
	}
	return err == nil
}

// removeAll removes path with all below it, also out of directories that the
// agent made read-only, as Go's module cache is.
func removeAll(path string) error {
	err := os.RemoveAll(path)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	reopen(filepath.Dir(path))
	_ = filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(path)
}
