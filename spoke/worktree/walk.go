package worktree

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/internal/git"
)

// Bounds of what is held of directories that are read, one within the other.
const (
	namesMost  = 2_000_000
	nameCosts  = 64      // bytes of one
	entryCosts = 40      // of an entry of a tree, beside its name
	slack      = 100_000 // names that may be of what is not read, as what is ignored
	heldMost   = 256 << 20
)

// A folder is a directory of a working tree that is being read.
type folder struct {
	file    *os.File
	path    string // from the working tree: "" or with a slash at its end
	depth   int
	was     id   // the tree that the parent has there; "" of none
	ignored bool // only what the parent has is read
	rules   *rules
}

// folder reads a directory to the entries of its tree. bare says that there is nothing in it at all.
func (c *collector) folder(f *folder) (list []entry, bare bool, err error) {
	if err := c.ctx.Err(); err != nil {
		return nil, false, err
	}
	was, held, err := c.entries(f.was)
	if err != nil {
		return nil, false, err
	}
	names, err := c.names(f)
	if err != nil {
		return nil, false, err
	}
	c.held += held + int64(len(names))*nameCosts
	defer func() { c.held -= held + int64(len(names))*nameCosts }()
	slices.Sort(names)
	size := 0 // of the tree
	if !f.ignored {
		if err := c.readRules(f); err != nil {
			return nil, false, err
		}
	}
	for _, name := range names {
		e, why, err := c.entry(f, name, was[name])
		if err != nil && why == "" {
			why = because(err)
			if why == "" {
				return nil, false, err
			}
		}
		switch why {
		case "":
			if size += len(name) + entryCosts; size > git.TreeMost {
				return nil, false, errWide
			}
			list = append(list, e)
			continue
		case emptied:
			continue
		case told:
		default:
			c.missing(f.path+name, why)
		}
		if was[name].mode != "" { // what cannot be read is not gone
			list = append(list, was[name])
		}
	}
	return list, len(names) == 0, nil
}

// errWide says that a directory has more than is held at once: it stays as the parent has it.
var errWide = fmt.Errorf("a directory: %w", git.ErrTooLarge)

// names are those of a directory.
func (c *collector) names(f *folder) ([]string, error) {
	most := min(namesMost-c.held/nameCosts, min(c.bounds.Files, namesMost)-c.left.Files+slack)
	names, err := f.file.Readdirnames(int(max(most, 1)))
	if err == io.EOF {
		return nil, nil
	}
	if err == nil {
		var more []string
		if more, err = f.file.Readdirnames(1); len(more) > 0 {
			err = errWide
		}
	}
	if err == io.EOF {
		err = nil
	}
	return names, err
}

// Reasons that are not told: that of what was told already, or needs no word; that of a directory without a file for the commit.
const (
	told    Reason = "told"
	emptied Reason = "emptied"
)

// entry reads one name of a directory; why says that it is not in the commit.
func (c *collector) entry(f *folder, name string, was entry) (e entry, why Reason, err error) {
	path := f.path + name
	switch {
	case name == ".git" && f.path == "":
		return e, told, nil
	case name == ".git":
		return e, Nested, nil
	case !holdable(name) || len(path) > nameMost:
		return e, BadName, nil
	}
	var st unix.Stat_t
	if err := unix.Fstatat(int(f.file.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return e, "", err
	}
	kind := st.Mode & unix.S_IFMT
	if kind == unix.S_IFDIR {
		return c.subfolder(f, name, was)
	}
	if !was.file() && (f.ignored || f.rules.ignores(path, false)) {
		return e, Ignored, nil
	}
	switch kind {
	case unix.S_IFLNK:
		e.mode = modeLink
		e.id, why, err = c.link(f, name, st.Size)
	case unix.S_IFREG:
		e.mode = modeFile
		if st.Mode&0o100 != 0 {
			e.mode = modeExec
		}
		e.id, why, err = c.file(f, name, was.id)
	default:
		return e, Special, nil
	}
	e.name = name
	if why == "" && err == nil && judged(name) && (e.mode != was.mode || e.id != was.id) {
		why, err = c.probe(f, e)
	}
	return e, why, err
}

// subfolder reads a directory within one.
func (c *collector) subfolder(f *folder, name string, was entry) (e entry, why Reason, err error) {
	path := f.path + name + "/"
	ignored := f.ignored || f.rules.ignores(f.path+name, true)
	switch {
	case ignored && was.mode != modeTree && was.mode != modeRepo:
		return e, told, c.told(path, Ignored)
	case f.depth >= depthMost, onlyFile(name):
		return e, told, c.told(path, BadName)
	}
	fd, err := unix.Openat(int(f.file.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return e, "", err
	}
	below := &folder{file: os.NewFile(uintptr(fd), path), path: path, depth: f.depth + 1, ignored: ignored, rules: f.rules}
	defer below.file.Close()
	if was.mode == modeRepo {
		if some, err := below.file.Readdirnames(1); len(some) > 0 || err != nil && err != io.EOF {
			return e, told, c.told(path, Submodule)
		}
		return e, told, nil
	}
	if was.mode == modeTree {
		below.was = was.id
	}
	list, bare, err := c.folder(below)
	switch {
	case errors.Is(err, git.ErrTooLarge):
		return e, told, c.told(path, TooMany)
	case err != nil:
		return e, "", err
	case bare && !ignored:
		c.missing(path, Empty)
	}
	if len(list) == 0 {
		return e, emptied, nil
	}
	tree, err := c.tree(list, below.was)
	return entry{modeTree, name, tree}, "", err
}

func (c *collector) told(path string, why Reason) error {
	c.missing(path, why)
	return nil
}

// link keeps a symbolic link: where it leads is its text, and nobody goes there.
func (c *collector) link(f *folder, name string, size int64) (id, Reason, error) {
	to := make([]byte, unix.PathMax+1)
	n, err := unix.Readlinkat(int(f.file.Fd()), name, to)
	if err != nil {
		return "", "", err
	}
	if why := c.room(size); why != "" {
		return "", why, nil
	}
	made, err := c.pack.addText(kindBlob, to[:n])
	return made, "", err
}

// room takes what a file needs from the bounds.
func (c *collector) room(size int64) Reason {
	switch {
	case c.left.Files >= c.bounds.Files:
		return TooMany
	case size > c.bounds.Bytes-c.left.Bytes:
		return TooLarge
	}
	c.left.Files++
	c.left.Bytes += size
	return ""
}

// file keeps a regular file, unless it is what was there.
func (c *collector) file(f *folder, name string, was id) (id, Reason, error) {
	fd, err := unix.Openat(int(f.file.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", "", err
	}
	file := os.NewFile(uintptr(fd), f.path+name)
	defer file.Close()
	var st unix.Stat_t
	switch err := unix.Fstat(fd, &st); {
	case err != nil:
		return "", "", err
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return "", Changed, nil
	case st.Uid != c.owner: // a second name of a file that the agent may not have been able to read
		return "", Foreign, nil
	}
	if why := c.room(st.Size); why != "" {
		return "", why, nil
	}
	in := &patient{c.ctx, file}
	if was != "" {
		same, err := c.pack.name(kindBlob, st.Size, in)
		if err != nil || same == was {
			return same, "", err
		}
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return "", "", err
		}
	}
	made, err := c.pack.add(kindBlob, st.Size, in)
	return made, "", err
}

// longLine reports whether a text has a line that is longer than what is read of one.
func longLine(text []byte) bool {
	for line := range bytes.Lines(text) {
		if len(line) > lineMost {
			return true
		}
	}
	return false
}

// readRules reads the .gitignore of a directory.
func (c *collector) readRules(f *folder) error {
	fd, err := unix.Openat(int(f.file.Fd()), ".gitignore", unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil && because(err) == "" {
		return err
	}
	var text []byte
	if err == nil {
		file := os.NewFile(uintptr(fd), f.path+".gitignore")
		defer file.Close()
		if info, statErr := file.Stat(); statErr == nil && info.Mode().IsRegular() {
			text, err = io.ReadAll(io.LimitReader(file, rulesMost+1))
		} else {
			err = errChanged
		}
	}
	if err != nil || len(text) > rulesMost || f.rules.bytes+len(text) > chainMost || f.rules.count+strings.Count(string(text), "\n") >= patternsMost || longLine(text) {
		return c.told(f.path+".gitignore", Rules)
	}
	f.rules = f.rules.under(f.path, string(text))
	return nil
}
