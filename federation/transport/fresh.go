package transport

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// The server keeps messages in memory only, and needs a directory all the same. It reads what
// it finds there, and one flipped bit in a sequence number of a stream's file made it take 6.7
// GB. So it gets an empty one: what an earlier version has left, a copy, or what is damaged is
// not opened but removed. Nothing is lost by that, because senders keep every message until the
// other database has confirmed it.

const (
	runDir = "run"       // of the server, in the directory that it is given
	oldDir = "jetstream" // where an earlier version kept messages
)

// freshDir returns an empty directory in dir, and says what was there of messages: "" for
// nothing. Nothing else in dir is touched.
func freshDir(dir string) (empty, found string, err error) {
	if dir == "" {
		return "", "", errors.New("no directory for the message server")
	}
	files, bytes := 0, int64(0)
	for _, name := range []string{runDir, oldDir} {
		n, size := contents(filepath.Join(dir, name))
		files, bytes = files+n, bytes+size
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, name)))
	}
	if err != nil {
		return "", "", fmt.Errorf("removing what is in the directory of the message server, which keeps nothing there (remove %s and %s in %s by hand): %w", runDir, oldDir, dir, err)
	}
	empty = filepath.Join(dir, runDir)
	if err := os.MkdirAll(empty, 0o700); err != nil {
		return "", "", fmt.Errorf("making the directory of the message server: %w", err)
	}
	if files > 0 {
		found = fmt.Sprintf("%s held %d files of messages (%d bytes), of an earlier version or put there: they were removed unread", dir, files, bytes)
	}
	return empty, found, nil
}

// contents counts the files below path. What cannot be looked at does not count, and is removed
// all the same.
func contents(path string) (files int, bytes int64) {
	_ = filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil
		}
		files++
		if info, err := e.Info(); err == nil {
			bytes += info.Size()
		}
		return nil
	})
	return files, bytes
}
