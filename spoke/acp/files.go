package acp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/spoke/acp/wire"
)

// maxText bounds what is read of a file at a time.
const maxText = 4 << 20

// files are those of the working directory. No path and no link leads out of it.
type files struct {
	root *os.Root
	dirs []string // its absolute names
}

func openFiles(dir string) (*files, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	f := &files{root: root, dirs: []string{dir}}
	if real, err := filepath.EvalSymlinks(dir); err == nil && real != dir {
		f.dirs = append(f.dirs, real)
	}
	return f, nil
}

// within is the name of an absolute path inside of the directory.
func (f *files) within(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", invalid("%q is no absolute path", path)
	}
	for _, dir := range f.dirs {
		if name, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(name) {
			return name, nil
		}
	}
	return "", invalid("%s is outside of the working directory %s", path, f.dirs[0])
}

// open opens a regular file; nothing else holds anybody up.
func (f *files) open(path string, flags int) (*os.File, error) {
	name, err := f.within(path)
	if err != nil {
		return nil, err
	}
	if flags&os.O_CREATE != 0 {
		if err := f.root.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			return nil, about(path, err)
		}
	}
	file, err := f.root.OpenFile(name, flags|unix.O_NONBLOCK|unix.O_NOCTTY, 0o666)
	if err != nil {
		return nil, about(path, err)
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		file.Close()
		return nil, invalid("%s is no regular file", path)
	}
	return file, nil
}

func about(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return problem(wire.NotFound, "there is no file %s", path)
	}
	if inner, ok := errors.AsType[*fs.PathError](err); ok {
		err = inner.Err
	}
	return invalid("%s: %v", path, err)
}

// read returns lines of a file, all without line and limit.
func (f *files) read(r wire.ReadTextFileRequest) (wire.ReadTextFileResponse, error) {
	file, err := f.open(r.Path, os.O_RDONLY)
	if err != nil {
		return wire.ReadTextFileResponse{}, err
	}
	defer file.Close()
	in, text, first, last := bufio.NewReader(file), strings.Builder{}, int64(1), int64(-1)
	if r.Line != nil {
		first = max(1, *r.Line)
	}
	if r.Limit != nil {
		last = first + max(0, min(*r.Limit, 1<<32)) - 1
	}
	for n := int64(1); last < 0 || n <= last; {
		part, err := in.ReadSlice('\n')
		if n >= first {
			text.Write(part)
		}
		if text.Len() > maxText {
			return wire.ReadTextFileResponse{}, invalid("%s has more than %d MiB there; read fewer lines", r.Path, maxText>>20)
		}
		switch err {
		case nil:
			n++
		case bufio.ErrBufferFull:
		case io.EOF:
			last = 0
		default:
			return wire.ReadTextFileResponse{}, about(r.Path, err)
		}
	}
	if !utf8.ValidString(text.String()) {
		return wire.ReadTextFileResponse{}, invalid("%s is not UTF-8", r.Path)
	}
	return wire.ReadTextFileResponse{Content: text.String()}, nil
}

func (f *files) write(r wire.WriteTextFileRequest) error {
	file, err := f.open(r.Path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	if _, err = file.WriteString(r.Content); err != nil {
		file.Close()
		return about(r.Path, err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("writing %s: %w", r.Path, err)
	}
	return nil
}
