// Package remove removes directories of any depth that others have made.
package remove

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// All removes path with all below it, also out of directories that may not be written to. What is not there is removed.
//
// Directories within directories are moved up, to just below path, until there are none: it has two of them open at most, whatever
// their depth, and looks at each once. [os.RemoveAll] has one open for each level: a tree that is deep enough takes all descriptors of a
// process. Nobody else may change the tree meanwhile.
func All(path string) error {
	err := unix.Unlink(path)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	fd, openErr := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if openErr == unix.EACCES {
		_ = unix.Fchmodat(unix.AT_FDCWD, path, 0o700, 0)
		fd, openErr = unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	if openErr == unix.ENOTDIR || openErr == unix.ELOOP {
		return &fs.PathError{Op: "remove", Path: path, Err: err} // a file that may not be removed
	}
	if openErr != nil {
		return &fs.PathError{Op: "open", Path: path, Err: openErr}
	}
	t := &tree{top: os.NewFile(uintptr(fd), path)}
	defer t.top.Close()
	_ = unix.Fchmod(fd, 0o700)
	if err := t.empty(t.top, t.entry); err != nil {
		return err
	}
	if err := unix.Rmdir(path); err != nil && err != unix.ENOENT {
		return &fs.PathError{Op: "rmdir", Path: path, Err: err}
	}
	return nil
}

type tree struct {
	top   *os.File
	moved int // names given
}

const atOnce = 1024 // names that are read of a directory

// empty calls remove for each name of a directory until there is none. Where all that is left of it cannot be removed, that is the error.
func (t *tree) empty(dir *os.File, remove func(dir *os.File, name string) error) error {
	for {
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return err
		}
		var failed error
		for gone := 0; gone == 0; {
			names, err := dir.Readdirnames(atOnce)
			for _, name := range names {
				if err := remove(dir, name); err != nil {
					failed = errors.Join(failed, &fs.PathError{Op: "remove", Path: dir.Name() + "/" + name, Err: err})
					continue
				}
				gone++
			}
			if gone == 0 && (err != nil || len(names) == 0) {
				if err == io.EOF {
					err = nil
				}
				return errors.Join(failed, err)
			}
			if failed != nil {
				failed = errors.New(failed.Error()) // not a chain that grows
			}
		}
	}
}

// entry removes one name below the top: a file, or a directory, of which the directories are moved up.
func (t *tree) entry(top *os.File, name string) error {
	return t.remove(top, name, func(below *os.File, name string) error {
		return t.remove(below, name, nil)
	})
}

// remove removes a name of a directory. Of a directory that is not empty it has each name removed by below; without that it moves it up.
func (t *tree) remove(dir *os.File, name string, below func(*os.File, string) error) error {
	at := int(dir.Fd())
	err := unix.Unlinkat(at, name, 0)
	if err == nil || err == unix.ENOENT || err != unix.EISDIR && err != unix.EPERM {
		return gone(err)
	}
	if removed := unix.Unlinkat(at, name, unix.AT_REMOVEDIR); removed == nil || removed == unix.ENOENT {
		return nil
	} else if removed == unix.ENOTDIR {
		return err
	}
	_ = unix.Fchmodat(at, name, 0o700, 0) // it is a directory, and stays one
	if below == nil {
		return t.up(at, name)
	}
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	sub := os.NewFile(uintptr(fd), dir.Name()+"/"+name)
	defer sub.Close()
	if err := t.empty(sub, below); err != nil {
		return err
	}
	return gone(unix.Unlinkat(at, name, unix.AT_REMOVEDIR))
}

// up moves a directory to below the top, by a name that is free there.
func (t *tree) up(at int, name string) error {
	for {
		t.moved++
		err := unix.Renameat2(at, name, int(t.top.Fd()), "removed-"+strconv.Itoa(t.moved), unix.RENAME_NOREPLACE)
		if err != unix.EEXIST {
			return err
		}
	}
}

func gone(err error) error {
	if err == unix.ENOENT {
		return nil
	}
	return err
}
