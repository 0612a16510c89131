package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/hostfile"
)

// A source is a file that a person names on the command line, or standard input in its place.
type source struct {
	what   string // is named, as errors say it: mostly the flag
	path   string
	input  bool   // it is standard input, not path
	most   int    // bytes
	line   bool   // read its first line alone; what is behind it on standard input may be an answer
	secret bool   // it is this user's alone, on a safe way
	larger string // what to do with what is larger; "" = nothing special
}

// readNamed reads it until ctx ends: whoever writes a pipe may never come.
func (a *app) readNamed(ctx context.Context, s source) (string, error) {
	return until(ctx, func() (string, error) { return s.read(a.in) })
}

func (s source) read(stdin io.Reader) (string, error) {
	in, name := stdin, "standard input"
	if !s.input {
		f, err := s.open()
		if err != nil {
			return "", s.unread(err, "name a file that is there and that you may read")
		}
		defer f.Close()
		in, name = f, s.path
	}
	text, err := s.text(io.LimitReader(in, int64(s.most)+1))
	if err != nil {
		return "", s.unread(err, "name what can be read to its end")
	}
	if len(text) > s.most {
		return "", misuse("reading %s: %s has more than %s", s.what, name, commands.SizeInWords(int64(s.most))).Hinting("%s", cmp.Or(s.larger, "is it what you meant? name a smaller one"))
	}
	return text, nil
}

func (s source) open() (*os.File, error) {
	if s.secret {
		return hostfile.Open(s.path, hostfile.Rule{Secret: true})
	}
	return os.Open(s.path)
}

func (s source) text(in io.Reader) (string, error) {
	if s.line {
		line, err := readLine(in)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return line, err
	}
	raw, err := io.ReadAll(in)
	return string(raw), err
}

// unread says what could not be read. Why a file is not safe has its own code, and says what to do.
func (s source) unread(err error, hint string) error {
	if _, unsafe := errors.AsType[*hostfile.UnsafeError](err); unsafe {
		return fmt.Errorf("reading %s: %w", s.what, err)
	}
	return misuse("reading %s: %v", s.what, err).Hinting("%s", hint)
}
