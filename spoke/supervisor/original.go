package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// An ElsewhereError says that the directory of an attempt is a copy: its shim works in the
// original. Nothing was ended.
type ElsewhereError struct {
	Original string // directory of the attempt
}

func (e *ElsewhereError) Error() string {
	return "this directory is a copy, and the agent belongs to the original: " + e.Original
}

// worksIn returns the directory in which the shim on record works, "" where that is dir: else
// dir is a copy, and what runs belongs to the original. The shim names its directory itself,
// and holds the lock there. Of a directory that was moved nothing is left under the name that
// its shim knows, or only a copy, whose lock nobody holds. A shim that is not on record counts
// for nothing: its agent can start one that names any directory.
func (saved savedSpec) worksIn(dir string) (original string) {
	here, err := os.Stat(dir)
	if err != nil || saved.shim.Pid == 0 || saved.shimGone() {
		return ""
	}
	named := shimDir(saved.shim.Pid)
	there, err := os.Stat(named)
	if err != nil || os.SameFile(here, there) || !lockHeld(named) {
		return ""
	}
	return named
}

// noteOriginal remembers, for the time after the shim, what dir is a copy of.
func noteOriginal(dir, original string) error {
	if Original(dir) == original {
		return nil
	}
	return replace(dir, originalFile, func(f *os.File) error {
		_, err := f.WriteString(original)
		return err
	})
}

// Original returns the directory of the attempt that dir was last seen to be a copy of, "" for
// one that was not. It may be the word of an agent that can write to dir.
func Original(dir string) string {
	b, err := readPlain(filepath.Join(dir, originalFile), unix.PathMax)
	name := string(b)
	if err != nil || !filepath.IsAbs(name) || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return ""
	}
	return name
}

// takeOver puts into dir, which has no record of its own, what the original has, if dir is
// a copy: first the output, then the record, so that a crash in between loses nothing. It
// returns nothing where there is no record. Only a directory with the token of this attempt
// counts: an agent that names another one learns nothing from it.
func (saved savedSpec) takeOver(ctx context.Context, dir string) (*Exit, error) {
	original := Original(dir)
	if original == "" || saved.shim.Pid == 0 || saved.Token == "" {
		return nil, nil
	}
	if there, err := readSpec(original, Known{}); err != nil || there.Token != saved.Token {
		return nil, err
	}
	e, err := readExit(original)
	if e == nil {
		return nil, err
	}
	var damage error
	for _, stream := range []Stream{Stdout, Stderr} {
		err := saved.copyStream(ctx, dir, original, stream)
		if err != nil && !errors.Is(err, errSpoilt) {
			return nil, fmt.Errorf("taking over %s from %s: %w", stream, original, err)
		}
		damage = errors.Join(damage, err)
	}
	if err := writeExit(dir, *e); err != nil {
		return nil, err
	}
	return e, damage
}

// copyStream replaces the file of a stream in dir by that of the original.
func (saved savedSpec) copyStream(ctx context.Context, dir, original string, stream Stream) error {
	from, err := openPlain(filepath.Join(original, string(stream)), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer from.Close()
	return replace(dir, string(stream), func(to *os.File) error {
		_, err := io.Copy(to, io.LimitReader(until{ctx, from}, saved.longest()))
		return err
	})
}
