package attempt

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
)

// ErrSpoilt says that a file of an attempt cannot serve, and will not by itself:
// something else is in its place, or it may not be read, or it says what no shim
// writes. Its agent has done that, or somebody with the same user.
var ErrSpoilt = errors.New("nobody but the agent or its user has done that")

// Spoilt is an ErrSpoilt that says what is wrong.
func Spoilt(what string) error { return plain.Wrap(what, ErrSpoilt) }

// ErrClosed is an ErrSpoilt: the file may not be opened, and neither its permissions nor those of its directory could be given back; or
// somebody has a lease on it.
var ErrClosed = Spoilt("it may not be opened")

// OpenPlain opens a file of an attempt directory, which its agent may write to
// as long as both have the same user: neither a link nor a pipe in the place of
// the file leads or holds up the caller. Landlock lets an agent change permissions wherever its user
// may, also of what is another agent's: they are given back.
func OpenPlain(name string, flags int) (*os.File, error) {
	flags |= syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	f, err := os.OpenFile(name, flags, 0o600)
	if errors.Is(err, fs.ErrPermission) {
		Reopen(dirOf(name))
		_ = os.Chmod(name, 0o600) // no link: that is another error
		f, err = os.OpenFile(name, flags, 0o600)
	}
	switch {
	case errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENXIO), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ETXTBSY):
		return nil, Spoilt(name + " is not a regular file")
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EAGAIN): // EAGAIN: somebody has a lease on it
		return nil, plain.Wrap(name, ErrClosed)
	case err != nil:
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if !info.Mode().IsRegular() {
		_ = f.Close()
		return nil, Spoilt(name + " is not a regular file")
	}
	return f, nil
}

// ReadPlain returns nothing when there is no such file.
func ReadPlain(name string, most int64) ([]byte, error) {
	f, err := OpenPlain(name, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		return nil, Spoilt(name + " has more than " + strconv.FormatInt(most, 10) + " bytes")
	}
	return b, err
}

// Replace makes a file of an attempt directory durable, by way of its draft: it is there as a
// whole, or as it was. What its agent has put in the place of either is taken away.
func Replace(dir, name string, write func(f *os.File) error) error {
	name = plain.Join(dir, name)
	draft := name + draftSuffix
	f, err := OpenPlain(draft, os.O_WRONLY|os.O_CREATE)
	if errors.Is(err, ErrSpoilt) && RemoveAll(draft) == nil {
		f, err = OpenPlain(draft, os.O_WRONLY|os.O_CREATE)
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
	if err = os.Rename(draft, name); err != nil && RemoveAll(name) == nil { // a directory
		err = os.Rename(draft, name)
	}
	if err != nil {
		return err
	}
	return syncDir(dir)
}

// Reopen gives a directory of an attempt back the permissions that an agent took away, and
// where it cannot be got to the two around it, which are of the attempt and of its task. The shim is in the
// directory: its path leads nowhere without them.
func Reopen(dir string) {
	if dir == "." {
		dir = "/proc/self/cwd"
	}
	reopen(dir, 3)
}

func reopen(dir string, levels int) {
	if levels == 0 || syscall.Access(dir, 7) == nil {
		return
	}
	if errors.Is(os.Chmod(dir, 0o700), fs.ErrPermission) {
		reopen(dirOf(dir), levels-1)
		_ = os.Chmod(dir, 0o700)
	}
}

// RemoveAll removes path with all below it, also out of directories that the
// agent made read-only, as Go's module cache is.
func RemoveAll(path string) error {
	err := os.RemoveAll(path)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	Reopen(dirOf(path))
	open(path)
	return os.RemoveAll(path)
}

// open makes directories writable, path and all below it.
func open(path string) {
	if info, err := os.Lstat(path); err != nil || !info.IsDir() {
		return
	}
	_ = os.Chmod(path, 0o700)
	entries, _ := os.ReadDir(path) // as far as it can be read
	for _, e := range entries {
		if e.IsDir() {
			open(plain.Join(path, e.Name()))
		}
	}
}

// syncDir writes the entries of a directory to the disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// dirOf returns the directory that a path is in.
func dirOf(path string) string {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '/' {
			return path[:max(i, 1)]
		}
	}
	return "."
}
