package worktree

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spawnmesh/spawnmesh/internal/git"
)

// A Reason says why something of a working tree is not in the commit that was made of it.
type Reason string

// Reasons. The last two lose no bytes.
const (
	Ignored    Reason = "ignored"    // a .gitignore says so; of a directory, for all that is in it
	Nested     Reason = "nested"     // the .git of a repository within the tree; its files are in the commit
	Submodule  Reason = "submodule"  // the commit names a submodule there, whose files are not the tree's
	Special    Reason = "special"    // a pipe, a socket, a device
	Unreadable Reason = "unreadable" // it may not be read, or its disk fails
	Foreign    Reason = "foreign"    // a file of another user than the tree
	BadName    Reason = "bad_name"   // git takes no such name, as .GIT, or so long a path
	Refused    Reason = "refused"    // git refuses what a .gitmodules or a .gitattributes says
	Changed    Reason = "changed"    // it changed while it was read
	TooMany    Reason = "too_many"   // there are more files than are taken
	TooLarge   Reason = "too_large"  // there are more bytes than are taken
	Empty      Reason = "empty"      // a directory with nothing in it
	Rules      Reason = "rules"      // a .gitignore that is not read: what it names is in the commit
)

// A Missing is one thing that is not in a commit.
type Missing struct {
	Path   string // from the working tree, as bytes; a directory ends with a slash
	Reason Reason
}

// Left is what an attempt has left.
type Left struct {
	Tip     string // the commit that has it: the parent, where nothing differs from that
	Made    bool   // whether Tip was made of files, and is not the parent
	Files   int64  // in the tree of Tip, that were read
	Bytes   int64
	Missing []Missing // the first of what is not in it, by path
	Counts  map[Reason]int64
}

// Lossless reports whether every byte of every file is in the commit.
func (l Left) Lossless() bool { return l.lost() == 0 }

// LosslessButIgnored is Lossless without what a .gitignore names.
func (l Left) LosslessButIgnored() bool { return l.lost() == l.Counts[Ignored] }

func (l Left) lost() (n int64) {
	for reason, count := range l.Counts {
		if reason != Empty && reason != Rules {
			n += count
		}
	}
	return n
}

// mostRefs bounds what is read of the names that an agent's .git has.
const mostRefs = 1 << 20

// Others counts the names of commits in an agent's .git besides its branch spawnmesh/NAME: what they name may be in no commit that came
// back. They are read as data. An error says that it cannot be told.
func Others(work, name string) (n int, err error) {
	root, err := os.OpenRoot(filepath.Join(work, ".git"))
	if err != nil {
		return 0, err
	}
	defer root.Close()
	own := git.Branches + name
	err = fs.WalkDir(root.FS(), "refs", func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && path != own {
			n++
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	f, err := root.OpenFile("packed-refs", os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return n, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > mostRefs {
		return 0, errors.Join(errors.New("its packed-refs is no file of git"), err)
	}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if id, ref, ok := strings.Cut(lines.Text(), " "); ok && git.IsID(id) && ref != own {
			n++
		}
	}
	return n, nil
}
