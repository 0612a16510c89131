package hostfile

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is how many symbolic links a way may have, as for the kernel.
const maxLinks = 40

// A walker stands in a directory that was looked at, as was all on the way to it.
type walker struct {
	fd   int
	st   unix.Stat_t
	path string // without links
	left []string
}

// walk goes to the directory that holds path and returns the name in it, "." for the
// root. With follow a link by that name is followed, too.
func walk(path string, follow bool) (*walker, string, error) {
	whole, err := filepath.Abs(path)
	if err != nil {
		return nil, "", err
	}
	w := &walker{fd: -1}
	if err := w.restart(); err != nil {
		return nil, "", err
	}
	w.push(whole)
	name, err := w.walk(follow)
	if err != nil {
		w.close()
		return nil, "", err
	}
	return w, name, nil
}

func (w *walker) walk(follow bool) (string, error) {
	for links := 0; len(w.left) > 0; {
		name := w.left[0]
		w.left = w.left[1:]
		last := len(w.left) == 0
		if last && !follow && name != ".." {
			return name, nil
		}
		target, err := w.link(name)
		switch {
		case errors.Is(err, fs.ErrNotExist) && last:
			return name, nil // who opens it says so
		case err != nil:
			return "", err
		case target != "":
			if links++; links > maxLinks {
				return "", &fs.PathError{Op: "open", Path: w.at(name), Err: unix.ELOOP}
			}
			if filepath.IsAbs(target) {
				if err := w.restart(); err != nil {
					return "", err
				}
			}
			w.push(target)
		case last && name != "..":
			return name, nil
		default:
			if err := w.enter(name); err != nil {
				return "", err
			}
		}
	}
	return ".", nil
}

// push puts path in front of what is left to walk.
func (w *walker) push(path string) {
	names := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	var list []string
	for _, name := range names {
		if name != "." {
			list = append(list, name)
		}
	}
	w.left = append(list, w.left...)
}

// at is the path of name in the directory.
func (w *walker) at(name string) string { return filepath.Join(w.path, name) }

// restart goes to the root.
func (w *walker) restart() error {
	w.path = "/"
	return w.open(unix.AT_FDCWD, "/")
}

// enter goes into a directory of the one where w is.
func (w *walker) enter(name string) error {
	w.path = w.at(name)
	return w.open(w.fd, name)
}

// open goes to the directory name of the one that is open as at, and looks at it.
func (w *walker) open(at int, name string) error {
	// O_PATH asks for no right to read the directory.
	fd, err := unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: w.path, Err: err}
	}
	w.close()
	w.fd = fd
	if err := unix.Fstat(fd, &w.st); err != nil {
		return &fs.PathError{Op: "stat", Path: w.path, Err: err}
	}
	if e := me().directory(w.path, &w.st); e != nil {
		e.Way = true
		return e
	}
	return nil
}

// link returns where a symbolic link leads, "" when name is none. One by somebody
// else, who can make it in a directory like /tmp, is unsafe.
func (w *walker) link(name string) (string, error) {
	path := w.at(name)
	fd, err := unix.Openat(w.fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return "", nil
	}
	if u := me(); st.Uid != 0 && st.Uid != u.uid {
		e := u.stranger(path, &st, ", who can lead it elsewhere,")
		e.Way = true
		return "", e
	}
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", target)
	if err != nil {
		return "", &fs.PathError{Op: "readlink", Path: path, Err: err}
	}
	return string(target[:n]), nil
}

func (w *walker) close() {
	if w.fd >= 0 {
		_ = unix.Close(w.fd)
		w.fd = -1
	}
}
