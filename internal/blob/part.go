package blob

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// syncEvery is how many bytes a part has written before it waits for the disk: the end of a large blob then does not wait for
// all of it at once, nor does whoever shares the disk.
const syncEvery = 8 << 20

// A Part is a blob of which not all has come, from one sender: what another one sends under the same digest cannot spoil it. It
// goes on behind what is there, also in another process. One goroutine uses it at a time, and there is one Part of a blob
// and a sender at a time.
type Part struct {
	store    *Store
	f        *os.File
	digest   Digest
	size     int64 // of the whole
	offset   int64
	unsynced int64
	sum      hash.Hash // of what is there
}

// part is the file of a part: senders are ids of connections, which have no dots.
func (s *Store) part(from string, d Digest) string {
	return filepath.Join(s.parts(), d.hex()+"."+from)
}

// A PartOf names a part.
type PartOf struct {
	From   string
	Digest Digest
}

// Parts lists the parts that are there, for whoever knows which are still wanted.
func (s *Store) Parts() (list []PartOf, err error) {
	files, err := os.ReadDir(s.parts())
	for _, f := range files {
		digits, from, _ := strings.Cut(f.Name(), ".")
		if d, err := Parse(prefix + digits); err == nil {
			list = append(list, PartOf{from, d})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("listing parts of blobs: %w", err)
	}
	return list, nil
}

// Came returns how much of d has come from one sender, into a part.
func (s *Store) Came(from string, d Digest) (int64, error) {
	info, err := os.Stat(s.part(from, d))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("looking for a part of blob %s: %w", d, err)
	}
	return info.Size(), nil
}

// RemovePart forgets what has come of d from one sender, where the last of it has come before that time; what is not here is no error. Nobody
// has the part open.
func (s *Store) RemovePart(from string, d Digest, before time.Time) error {
	if err := removeOld(s.part(from, d), before); err != nil {
		return fmt.Errorf("removing a part of blob %s: %w", d, err)
	}
	return nil
}

// Part begins to receive d, which has size bytes, from a sender, or goes on with it: it reads what is there, for the digest.
func (s *Store) Part(from string, d Digest, size int64) (*Part, error) {
	if from == "" || strings.Trim(from, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return nil, fmt.Errorf("receiving blob %s: %.80q is no sender: it has lower-case letters, digits and dashes", d, from)
	}
	f, err := os.OpenFile(s.part(from, d), os.O_RDWR|os.O_CREATE, 0o600)
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
	if p.unsynced += int64(len(b)); p.unsynced < syncEvery {
		return nil
	}
	p.unsynced = 0
	if err := p.f.Sync(); err != nil {
		return fmt.Errorf("receiving blob %s: %w", p.digest, err)
	}
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
