package git

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// A Batch reads objects of a repository, one after the other, with one process. One goroutine uses it, and closes it.
type Batch struct {
	ctx  context.Context
	run  *process
	to   *os.File
	end  *os.File
	from *bufio.Reader
}

// Batch begins to read objects. It ends with its context or with Close.
func (g *Git) Batch(ctx context.Context, gitDir string) (*Batch, error) {
	in, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	from, out, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, to.Close())
	}
	defer out.Close()
	run, err := g.start(ctx, Call{GitDir: gitDir, Args: []string{"cat-file", "--batch"}, In: in, Out: out})
	if err != nil {
		return nil, errors.Join(err, to.Close(), from.Close())
	}
	return &Batch{ctx, run, to, from, bufio.NewReader(from)}, nil
}

// Object returns the kind and the content of an object, which is held in memory. One of more bytes than most is [ErrTooLarge].
func (b *Batch) Object(id string, most int64) (kind string, content []byte, err error) {
	if !IsID(id) {
		return "", nil, fmt.Errorf("%.80q is no name of an object", id)
	}
	if _, err := b.to.WriteString(id + "\n"); err != nil {
		return "", nil, fmt.Errorf("reading object %s: %w", id, err)
	}
	line, err := b.from.ReadString('\n')
	fields := strings.Fields(line)
	if err != nil || len(fields) != 3 {
		return "", nil, errors.Join(fmt.Errorf("reading object %s: git says %.100q", id, line), err)
	}
	size, err := strconv.ParseInt(fields[2], 10, 64)
	if err == nil && size > most {
		if _, err = io.CopyN(io.Discard, b.from, size+1); err == nil {
			err = fmt.Errorf("%w: it has %d bytes, limit %d", ErrTooLarge, size, most)
		}
	}
	if err != nil {
		return "", nil, fmt.Errorf("reading object %s: %w", id, err)
	}
	content = make([]byte, size+1)
	if _, err := io.ReadFull(b.from, content); err != nil {
		return "", nil, fmt.Errorf("reading object %s: %w", id, err)
	}
	return fields[1], content[:size], nil
}

// Close ends the process.
func (b *Batch) Close() error {
	return errors.Join(b.to.Close(), b.run.wait(b.ctx), b.end.Close())
}
