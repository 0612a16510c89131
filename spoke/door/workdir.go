package door

import (
	"os"
	"path/filepath"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/place"
)

// A WorkDir is the working directory that an agent began in. The agent may be able to put another directory, or a link, where its
// path leads: nothing is looked for there.
type WorkDir struct {
	path string
	id   string
	held *folder // nil = it is opened by its path when a file in it is named
}

// OpenWorkDir is the working directory of an agent that is about to begin, as it was opened for that. path is its name for the agent.
// One that cannot be read has the id "", and no file in it can be named.
func OpenWorkDir(path string, at *place.Place) *WorkDir {
	f, err := openFolder(path, at)
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
	at, err := place.OpenDir(w.path)
	if err == nil {
		defer at.Close()
		f, err = openFolder(w.path, at)
	}
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

// openFolder opens what is in a directory. It does not need at any longer.
func openFolder(path string, at *place.Place) (*folder, error) {
	root, err := os.OpenRoot(at.Link())
	return &folder{root: root, id: at.ID(), names: []string{path, at.Path()}}, err
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
