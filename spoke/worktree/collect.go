package worktree

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/internal/git"
)

// By says whose commit Collect makes, and of when.
type By struct {
	Name, Email string
	When        time.Time
}

// Bounds are what Collect takes at most.
type Bounds struct {
	Files  int64 // files that are read
	Bytes  int64 // of all of them
	Listed int   // things in Left.Missing
}

// Collect makes a commit of the files in a working tree, "spawnmesh: left by attempt N", on top of parent, where they differ from that.
// The same files, parent, number and author make the same commit again.
//
// The files are read as data: no link is followed, nothing named .git is looked at, and no git runs there. Files that no commit has yet
// are left out where a .gitignore of the tree says so. What cannot be in the commit is told, and stays in it as the parent has it. All
// processes of the attempt must have ended.
func (r *Repo) Collect(ctx context.Context, work, parent string, attempt int, by By, bounds Bounds) (left Left, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("collecting the files of %s: %w", work, err)
		}
	}()
	if !git.IsID(parent) {
		return left, fmt.Errorf("%.80q is no name of a commit", parent)
	}
	draft, err := os.MkdirTemp(r.objectsDir(), git.Drafts)
	if err != nil {
		return left, err
	}
	defer os.RemoveAll(draft)
	file, err := os.Create(draft + "/left")
	if err != nil {
		return left, err
	}
	defer file.Close()
	batch, err := r.git.Batch(ctx, r.dir)
	if err != nil {
		return left, err
	}
	defer batch.Close()
	c := &collector{ctx: ctx, repo: r, batch: batch, pack: newPack(file, len(parent)), bounds: bounds, left: Left{Tip: parent, Counts: map[Reason]int64{}}}
	if err := c.commit(work, parent, attempt, by); err != nil {
		return left, err
	}
	if !c.left.Made {
		return c.left, nil
	}
	text, size := c.pack.reader()
	return c.left, r.git.Take(ctx, r.objects(), git.Parcel{Pack: text, Most: size, Tips: []string{c.left.Tip}, Known: []string{parent}})
}

func (r *Repo) objectsDir() string { return r.dir + "/objects" }

// A collector is one run of Collect.
type collector struct {
	ctx    context.Context
	repo   *Repo
	batch  *git.Batch
	pack   *pack
	bounds Bounds
	left   Left
	owner  uint32 // of the working tree
	held   int64  // bytes of the names and trees of the directories that are being read
	probes int
}

// commit reads the tree, and makes the commit of it.
func (c *collector) commit(work, parent string, attempt int, by By) error {
	was, err := c.rootOf(parent)
	if err != nil {
		return err
	}
	fd, err := unix.Open(work, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: work, Err: err}
	}
	root := &folder{file: os.NewFile(uintptr(fd), work), was: was}
	defer root.file.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	c.owner = st.Uid
	steps := int64(stepsMost)
	root.rules = &rules{steps: &steps}
	list, _, err := c.folder(root)
	if errors.Is(err, git.ErrTooLarge) {
		c.missing("", TooMany)
		return nil
	}
	if err != nil {
		return err
	}
	tree, err := c.tree(list, was)
	if err != nil {
		return err
	}
	if steps <= 0 {
		c.missing("", Rules)
	}
	if tree == was {
		return nil
	}
	commit, err := c.pack.addText(kindCommit, commitText(tree, parent, attempt, by))
	c.left.Tip, c.left.Made = commit.String(), true
	return err
}

// rootOf is the tree of a commit.
func (c *collector) rootOf(commit string) (id, error) {
	_, text, err := c.batch.Object(commit, git.CommitMost)
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	raw, err := hex.DecodeString(strings.TrimPrefix(line, "tree "))
	return id(raw), err
}

// entries of a tree of the repository, and how many bytes are held of it. Where these would be more than are held at once that is
// [git.ErrTooLarge].
func (c *collector) entries(tree id) (list map[string]entry, held int64, err error) {
	if tree == "" {
		return nil, 0, nil
	}
	_, text, err := c.batch.Object(tree.String(), min(git.TreeMost, max(heldMost-c.held, 0)))
	if err != nil {
		return nil, 0, err
	}
	list, err = readTree(text, c.pack.digits)
	return list, int64(len(text)), err
}

// tree keeps a tree, unless it is the one that was.
func (c *collector) tree(list []entry, was id) (id, error) {
	text := treeText(list)
	name, err := c.pack.name(kindTree, int64(len(text)), bytes.NewReader(text))
	if err != nil || name == was {
		return name, err
	}
	return c.pack.addText(kindTree, text)
}

func commitText(tree id, parent string, attempt int, by By) []byte {
	var text strings.Builder
	fmt.Fprintf(&text, "tree %s\nparent %s\n", tree, parent)
	plain := func(name string) string {
		return strings.TrimSpace(strings.Map(func(r rune) rune {
			if r < ' ' || r == '<' || r == '>' || r == 0x7f {
				return -1
			}
			return r
		}, name))
	}
	for _, who := range []string{"author", "committer"} {
		fmt.Fprintf(&text, "%s %s <%s> %d +0000\n", who, plain(by.Name), plain(by.Email), max(by.When.Unix(), 0))
	}
	fmt.Fprintf(&text, "\nspawnmesh: left by attempt %d\n", attempt)
	return []byte(text.String())
}

// missing notes what is not in the commit.
func (c *collector) missing(path string, why Reason) {
	c.left.Counts[why]++
	if len(c.left.Missing) < c.bounds.Listed {
		c.left.Missing = append(c.left.Missing, Missing{path, why})
	}
}

// because is the reason of an error of the system about one file; nil where it is none of a file, but of this process.
func because(err error) Reason {
	switch {
	case errors.Is(err, errChanged), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return Changed
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EIO), errors.Is(err, unix.EBUSY), errors.Is(err, unix.ESTALE), errors.Is(err, unix.ETIMEDOUT):
		return Unreadable
	case errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return Special
	}
	return ""
}
