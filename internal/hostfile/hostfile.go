// Package hostfile opens files that only their host can have written: policies,
// keys and files of variables.
//
// A file is as safe as every directory on the way to it: who may write one of them
// can put another file in the place of this one. So the way is walked from the root,
// a directory at a time, and each is looked at after it was opened and before
// anything in it is. What was looked at is what is used: names that change meanwhile
// change nothing.
//
// Root and the user of this process may own what is on the way. Nobody else may write
// it, but for directories with the sticky bit, where nobody renames what is not his
// own, and for groups that have no other member: root's and the user's own of the same name.
package hostfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// An UnsafeError says who else could have written, or read, a file.
type UnsafeError struct {
	Path string // what is unsafe: the file, or what is on the way to it
	Why  string
	Hint string // what to do, mostly a command to run
	Way  bool   // Path is on the way to what was asked for
}

// Error gives path, reason and hint.
func (e *UnsafeError) Error() string { return e.Path + " " + e.Why + "; " + e.Hint }

func unsafe(path, why, hint string) *UnsafeError {
	return &UnsafeError{Path: path, Why: why, Hint: hint}
}

// A Rule says what a file is.
type Rule struct {
	Secret bool // this user's own, and nobody else can use it; else others may read it
	NoLink bool // the name itself is no symbolic link
}

// Open opens the regular file at path for reading. What somebody else could have put
// there is an [*UnsafeError]; what is not there is [fs.ErrNotExist].
func Open(path string, rule Rule) (*os.File, error) {
	w, name, err := walk(path, !rule.NoLink)
	if err != nil {
		return nil, err
	}
	defer w.close()
	return w.file(name, rule)
}

// Read reads a file that Open opens; one of more than most bytes is refused, and no part of it used.
func Read(path string, rule Rule, most int64) ([]byte, error) {
	f, err := Open(path, rule)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(raw)) > most {
		err = unsafe(path, fmt.Sprintf("is larger than %d bytes", most), "shorten it, or name another file")
	}
	return raw, err
}

// file opens name in the directory where w is.
func (w *walker) file(name string, rule Rule) (*os.File, error) {
	path := w.at(name)
	// A pipe does not hold us.
	fd, err := unix.Openat(w.fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, unsafe(path, "is a symbolic link", "put the file itself there")
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, errors.Join(&fs.PathError{Op: "stat", Path: path, Err: err}, f.Close())
	}
	if e := me().file(path, &st, rule); e != nil {
		return nil, errors.Join(e, f.Close())
	}
	return f, nil
}

// Dir looks at the directory at path, which nobody else may write, and at all that
// are on the way to it. What is not there is [fs.ErrNotExist].
func Dir(path string) error {
	w, name, err := walk(path, true)
	if err != nil {
		return err
	}
	defer w.close()
	if name == "." {
		return nil
	}
	if err := w.enter(name); err != nil {
		return err
	}
	if e := me().writers(w.path, &w.st); e != nil {
		return e
	}
	return nil
}

// Way is [Dir] of a directory that need not be there yet: it looks at as much of the
// way to it as is.
func Way(path string) error {
	if err := Dir(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// file says why a file that was opened is not taken, nil when it is.
func (u user) file(path string, st *unix.Stat_t, rule Rule) *UnsafeError {
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return unsafe(path, "is not a regular file", "put the file itself there")
	case st.Uid != u.uid && (rule.Secret || st.Uid != 0):
		return u.stranger(path, st, "")
	case rule.Secret && st.Mode&0o177 != 0:
		return unsafe(path, fmt.Sprintf("has mode %#o: others can use it", st.Mode&0o777), run("chmod 600", path))
	case st.Mode&0o022 != 0:
		return unsafe(path, "can be written by others", run("chmod go-w", path))
	}
	return nil
}

func (u user) stranger(path string, st *unix.Stat_t, why string) *UnsafeError {
	command := fmt.Sprintf("chown %d", u.uid)
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		command = fmt.Sprintf("chown -h %d", u.uid)
	}
	return unsafe(path, fmt.Sprintf("belongs to user %d%s and must belong to the user that runs this", st.Uid, why), run(command, path))
}

// run is a command about path as it can be pasted.
func run(command, path string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:@%,="
	if strings.Trim(path, plain) != "" {
		path = "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	return "run: " + command + " " + path
}
