package worktree

import (
	"errors"
	"io"
	"io/fs"
	"os"

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

// Bounds of what is read of the names that an agent's .git has.
const (
	mostPacked = 1 << 20 // bytes of packed-refs
	mostRefs   = 10_000
	refsDepth  = 32
)

// errRefs says that the names in a .git cannot be told.
var errRefs = errors.New("its branches cannot be told: its .git is none that git makes, or has too many")

// others counts the names of commits in an agent's .git besides its branch spawnmesh/NAME: what they name may be in no commit that came
// back. They are read as data: no link is followed, and nothing but directories and packed-refs is opened. An error says that it cannot be told.
// All processes of the attempt must have ended.
func others(work, name string) (n int, err error) {
	root, err := os.OpenRoot(work)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	entries := mostRefs
	if n, err = countRefs(root, ".git/refs", git.Branches+name, refsDepth, &entries); err != nil {
		return 0, err
	}
	packed, err := packedRefs(root, git.Branches+name)
	if err != nil {
		return 0, err
	}
	return n + packed, nil
}

// countRefs counts the files below a directory that is none by a link. It looks at so many entries.
func countRefs(root *os.Root, dir, own string, depth int, entries *int) (n int, err error) {
	for _, d := range []string{".git", dir} {
		if info, err := root.Lstat(d); err != nil || !info.IsDir() || depth == 0 {
			return 0, errors.Join(errRefs, err)
		}
	}
	f, err := root.Open(dir)
	if err != nil {
		return 0, err
	}
	list, err := f.ReadDir(*entries + 1)
	if *entries -= len(list); errors.Join(f.Close(), notEnd(err)) != nil || *entries < 0 {
		return 0, errors.Join(errRefs, notEnd(err))
	}
	for _, e := range list {
		path := dir + "/" + e.Name()
		switch {
		case e.IsDir():
			var below int
			if below, err = countRefs(root, path, own, depth-1, entries); err != nil {
				return 0, err
			}
			n += below
		case path != ".git/"+own:
			n++
		}
	}
	return n, nil
}

func notEnd(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

func packedRefs(root *os.Root, own string) (n int, err error) {
	err = eachPacked(root, func(_, ref string) {
		if ref != own {
			n++
		}
	})
	return n, err
}

// readPacked is the text of packed-refs, "" where there is none.
func readPacked(root *os.Root) (string, error) {
	const name = ".git/packed-refs"
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil || !info.Mode().IsRegular() || info.Size() > mostPacked {
		return "", errors.Join(errRefs, err)
	}
	text, err := root.ReadFile(name)
	return string(text), err
}
