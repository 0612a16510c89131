package blob

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
)

// A Part is a blob of which not all has come. It goes on behind what is there, also in another process. One goroutine uses
// it at a time, and there is one Part of a blob at a time.
type Part struct {
	store  *Store
	f      *os.File
	digest Digest
	size   int64 // of the whole
	offset int64
	sum    hash.Hash // of what is there
}

func (s *Store) part(d Digest) string { return filepath.Join(s.parts(), d.hex()) }

// Part begins to receive d, which has size bytes, or goes on with it: it reads what is there, for the digest.
func (s *Store) Part(d Digest, size int64) (*Part, error) {
	f, err := os.OpenFile(s.part(d), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("receiving blob %s: %w", d, err)
	}
	p := &Part{store: s, f: f, digest: d, size: size, sum: sha256.New()}
	p.offset, err = io.Copy(p.sum, f)
	if err == nil && p.offset > size { // it was begun with another size
		err = p.restart()
	}
	if err != nil {
		return nil, fmt.Errorf("receiving blob %s: %w", d, errors.Join(err, f.Close()))
	}
	return p, nil
}

// Offset returns how many bytes have come: what comes next goes there.
func (p *Part) Offset() int64 { return p.offset }

// Append takes the bytes that go on where the part ends; more than the size is [ErrTooLarge]. What was written of bytes
// that fail does not count.
func (p *Part) Append(b []byte) error {
	if int64(len(b)) > p.size-p.offset {
		return fmt.Errorf("receiving blob %s: %w: it has %d bytes, and %d have come", p.digest, ErrTooLarge, p.size, p.offset+int64(len(b)))
	}
	if _, err := p.f.WriteAt(b, p.offset); err != nil {
		return fmt.Errorf("receiving blob %s: %w", p.digest, err)
	}
	p.sum.Write(b)
	p.offset += int64(len(b))
	return nil
}

// Finish makes the part a blob when all of it has come: it is on the disk then. Bytes that are not those of the digest are
// [ErrDamaged], and forgotten: the transfer begins again. The part is of no use after that.
func (p *Part) Finish() error {
	err := p.finish()
	if err = errors.Join(err, p.f.Close()); err != nil {
		return fmt.Errorf("receiving blob %s: %w", p.digest, err)
	}
	return nil
}

func (p *Part) finish() error {
	if p.offset < p.size {
		return fmt.Errorf("%d of %d bytes have come: %w", p.offset, p.size, io.ErrUnexpectedEOF)
	}
	if Digest(p.sum.Sum(nil)) != p.digest {
		return errors.Join(ErrDamaged, os.Remove(p.f.Name()))
	}
	if err := p.f.Truncate(p.size); err != nil { // a write that failed may have left more
		return err
	}
	return p.store.name(p.f, p.digest)
}

// Close keeps what has come, for a Part that goes on with it.
func (p *Part) Close() error {
	if err := errors.Join(p.f.Truncate(p.offset), p.f.Close()); err != nil {
		return fmt.Errorf("receiving blob %s: %w", p.digest, err)
	}
	return nil
}

func (p *Part) restart() error {
	p.offset = 0
	p.sum.Reset()
	_, err := p.f.Seek(0, io.SeekStart)
	return errors.Join(err, p.f.Truncate(0))
}
