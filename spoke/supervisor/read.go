package supervisor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
)

// A Piece is a part of what an agent wrote to a stream.
type Piece struct {
	Data []byte
	// Ended says that nothing follows Data, now or later. Output then tells
	// what was dropped of the stream, and where; before that it is zero.
	Ended  bool
	Output Output
}

// Read returns up to limit bytes of a stream from an offset in its file. The
// file only ever grows, so that an offset up to which the stream was read, or
// sent, stays good for ever, also in another process. Data is empty where there
// is nothing to read yet. What of an attempt is not [Remove]d can be read at any
// time: while its agent runs, while nobody supervises it, and after its end.
//
// The agent can make its file longer. The stream ends where the record says that the
// shim's file did, and in any case at outputCap, that of the Spec, and the lines for what
// is missing.
func Read(dir string, stream Stream, offset int64, limit int, outputCap int64) (Piece, error) {
	fail := func(err error) (Piece, error) {
		return Piece{}, fmt.Errorf("reading %s of the attempt in %s: %w", stream, dir, err)
	}
	if stream != Stdout && stream != Stderr || offset < 0 || limit <= 0 {
		return fail(errors.New("there is no such stream, or the offset is negative, or nothing is asked for"))
	}
	// Before the file, which is complete once the record is there.
	exit, err := readExit(dir)
	if err != nil && !errors.Is(err, attempt.ErrSpoilt) {
		return fail(err)
	}
	over := exit != nil && len(exit.Survivors) == 0
	p, end := Piece{}, Spec{OutputCap: outputCap}.Longest()
	if over {
		if p.Output = exit.Stdout; stream == Stderr {
			p.Output = exit.Stderr
		}
		end = min(end, p.Output.Size)
	}
	p.Data, err = readAt(filepath.Join(dir, string(stream)), offset, int(max(0, min(int64(limit), end-offset))))
	if err != nil {
		return fail(err)
	}
	if len(p.Data) == limit || !over {
		if len(p.Data) == 0 {
			_, err = os.Lstat(dir)
		}
		if err != nil {
			return fail(err)
		}
		return Piece{Data: p.Data}, nil
	}
	p.Ended = true
	if offset+int64(len(p.Data)) < p.Output.Size {
		p.Output.Cut = true // the host lost power before the file was on disk, or the record is the agent's
	}
	return p, nil
}

// Empty reports whether a stream is known to have nothing to read: it opens no file.
func Empty(dir string, stream Stream) bool {
	info, err := os.Lstat(filepath.Join(dir, string(stream)))
	return errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0
}

// readAt reads what there is. A file that does not exist is an empty one: the
// agent was not started yet, or never.
func readAt(name string, offset int64, limit int) ([]byte, error) {
	f, err := attempt.OpenPlain(name, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data := make([]byte, limit)
	n, err := f.ReadAt(data, offset)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return data[:n], err
}

// ErrUnreadable says that a stream cannot be read, and will not be: its agent has
// put something else in the place of its file, or has closed it to its spoke.
var ErrUnreadable = attempt.ErrSpoilt
