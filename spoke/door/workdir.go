package door

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/commands"
)

// A WorkDir is the working directory that an agent began in. The agent may be able to put another directory, or a link, where its
// path leads: nothing is looked for there.
type WorkDir struct {
	path string
	id   string
	held *folder // nil = it is opened by its path when a file in it is named
}

// OpenWorkDir opens the working directory of an agent that is about to begin, at an absolute path. One that cannot be opened has the
// id "", and no file in it can be named.
func OpenWorkDir(path string) *WorkDir {
	f, err := openFolder(path)
	if err != nil {
		return KnownWorkDir(path, "")
	}
	return &WorkDir{path, f.id, f}
}

// KnownWorkDir is the directory of an agent that has begun, which had the id then.
func KnownWorkDir(path, id string) *WorkDir { return &WorkDir{path: path, id: id} }

// ID tells it from all other directories of this host, as long as it is there.
func (w *WorkDir) ID() string { return w.id }

// Close lets go of the directory. It may be called again, and while a file in it is read.
func (w *WorkDir) Close() {
	if w != nil && w.held != nil {
		w.held.close()
	}
}

// open returns the directory, and what is to be called when it is not needed any more.
func (w *WorkDir) open() (f *folder, leave func(), err error) {
	if w.held != nil {
		return w.held, func() {}, nil
	}
	f, err = openFolder(w.path)
	if err != nil {
		return nil, nil, commands.Refuse(commands.NotFound, "the working directory of this agent cannot be opened by its spoke").Hinting("say it again without artifacts")
	}
	if f.id != w.id {
		f.close()
		return nil, nil, commands.Refuse(commands.Conflict, "the working directory of this agent is not known to be the one that it began in").Hinting("say it again without artifacts")
	}
	return f, f.close, nil
}

// A folder is an open directory.
type folder struct {
	root  *os.Root
	id    string
	names []string // absolute, by which an agent knows it
}

// openFolder opens the directory at path. Nothing else that is there holds it up, as a pipe would.
func openFolder(path string) (*folder, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	link := fmt.Sprintf("/proc/self/fd/%d", fd)
	f := &folder{names: []string{path}}
	if real, err := os.Readlink(link); err == nil {
		f.names = append(f.names, real)
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	f.id = fmt.Sprintf("%d:%d", st.Dev, st.Ino)
	f.root, err = os.OpenRoot(link)
	return f, err
}

func (f *folder) close() { _ = f.root.Close() }

// inside is a path in its shortest form from the directory, which it may name as the agent sees it.
func (f *folder) inside(path string) (string, error) {
	short := filepath.Clean(path)
	if filepath.IsAbs(path) {
		for _, name := range f.names {
			if from, err := filepath.Rel(name, path); err == nil && filepath.IsLocal(from) {
				return from, nil
			}
		}
	}
	if path == "" || !filepath.IsLocal(short) {
		return "", commands.Refuse(commands.BadPath, "artifact %q is outside of the working directory", commands.Clip(path)).Hinting("copy the file there, and name the copy")
	}
	return short, nil
}
