package spoke

import (
	"errors"
	"io/fs"
	"os"
	"path"
)

// A placed is a file that an order brings, at a path below a directory of its agent.
type placed struct {
	path    string
	content string
	mode    fs.FileMode
}

// write makes files in a directory that the attempt has made. Each is new, and the directories on the way are, or are of what the order
// brings: a file that is there already, or a link, is somebody else's.
func write(dir string, list []placed) error {
	return in(dir, list, func(root *os.Root) error {
		for _, d := range dirsOf(list) {
			if err := makeDir(root, d); err != nil {
				return err
			}
		}
		for _, f := range list {
			if err := f.writeTo(root); err != nil {
				return err
			}
		}
		return nil
	})
}

func makeDir(root *os.Root, dir string) error {
	err := root.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		if info, is := root.Lstat(dir); is == nil && info.IsDir() {
			return nil
		}
	}
	return err
}

func (f placed) writeTo(root *os.Root) error {
	file, err := root.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.mode)
	if err != nil {
		return err
	}
	_, err = file.WriteString(f.content)
	return errors.Join(err, file.Chmod(f.mode), file.Close()) // whatever the umask is
}

// give makes files, and the directories on the way to them, a user's own.
func give(dir string, list []placed, user int) error {
	return in(dir, list, func(root *os.Root) error {
		paths := dirsOf(list)
		for _, f := range list {
			paths = append(paths, f.path)
		}
		for _, p := range paths {
			if err := root.Lchown(p, user, user); err != nil {
				return err
			}
		}
		return nil
	})
}

// in opens a directory that nothing leads out of, if there is something to do there.
func in(dir string, list []placed, do func(*os.Root) error) error {
	if len(list) == 0 {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	return errors.Join(do(root), root.Close())
}

// dirsOf are the directories on the way to files, each behind the one that it is in.
func dirsOf(list []placed) (dirs []string) {
	seen := map[string]bool{".": true}
	var add func(dir string)
	add = func(dir string) {
		if !seen[dir] {
			seen[dir] = true
			add(path.Dir(dir))
			dirs = append(dirs, dir)
		}
	}
	for _, f := range list {
		add(path.Dir(f.path))
	}
	return dirs
}
