package federation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/google/uuid"
)

// An instance begins a life each time it is started. Its data directory and its
// database both keep the mark of the last one, so that a database that was put
// back alone, or a directory that was copied, is noticed before anything is sent
// or started. Only a file system that was set back as a whole is not: the peers
// notice that.

// beginLife makes the mark of a new life, after it was found out whether the
// database has the mark of the last one.
func (b *Board) beginLife(ctx context.Context) error {
	file := filepath.Join(b.Dir, "incarnation")
	found, err := readMark(file)
	if err != nil {
		return err
	}
	if err := mark(file); err != nil {
		return fmt.Errorf("marking the data directory: %w", err)
	}
	next, err := readMark(file)
	if err != nil {
		return err
	}
	restored, err := b.DB.BeginLife(ctx, found, next)
	if err == nil && restored {
		b.Log.WarnContext(ctx, "the database is not as the data directory left it: it was restored from a backup; see: spawnmesh connections list")
	}
	return err
}

// mark gives the data directory another mark. A crash may leave the old one.
func mark(file string) error {
	f, err := os.OpenFile(file+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(uuid.NewString())
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// readMark returns what a data directory says of its last life, "" for nothing. A
// copy of the file says something else: nobody chooses when an inode was changed.
func readMark(file string) (string, error) {
	id, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the mark of the data directory: %w", err)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(file, &st); err != nil {
		return "", fmt.Errorf("reading the mark of the data directory: %w", err)
	}
	return fmt.Sprintf("%s %d.%09d", id, st.Ctim.Sec, st.Ctim.Nsec), nil
}
