// Package blob keeps bytes by their digest in the files of one directory: what goes to agents and what they leave.
//
// A blob has its name when all of it is on the disk, and never changes. So who finds the name has the bytes, a second
// write of the same bytes is no error, and a transfer that broke off goes on behind what is there (see [Part]).
// What may be forgotten is not decided here: the database knows who needs which blob.
package blob

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/spawnmesh/spawnmesh/internal/fsync"
)

// Errors of a store.
var (
	ErrTooLarge = errors.New("too large")                             // the bytes are more than the caller takes
	ErrDamaged  = errors.New("its bytes are not those of its digest") // on the disk, or as they came
)

// A Store keeps blobs. Any number of goroutines may use it; one process has the directory.
type Store struct {
	dir  string
	mu   sync.Mutex // guards mark, and is held while something gets its name or loses it for its age
	mark string
}

// Open returns the store in dir, which it makes if it has to, and removes what writers of an earlier process left unfinished.
// Transfers that had not ended stay.
func Open(dir string) (*Store, error) {
	s := &Store{dir: dir}
	for _, d := range []string{s.drafts(), s.parts()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("opening the blobs in %s: %w", dir, err)
		}
	}
	left, err := os.ReadDir(s.drafts())
	for _, f := range left {
		err = errors.Join(err, os.Remove(filepath.Join(s.drafts(), f.Name())))
	}
	if err = errors.Join(err, fsync.Dir(dir)); err != nil {
		return nil, fmt.Errorf("opening the blobs in %s: %w", dir, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, MarkFile))
	if s.mark = string(text); err != nil || uuid.Validate(s.mark) != nil {
		err = s.Renew()
	}
	return s, err
}

// MarkFile is, in the directory of a store, what is in no copy of it.
const MarkFile = "mark"

// Mark is random, and another one where blobs may be lost: the directory was made anew, or is a copy, or somebody has said so.
func (s *Store) Mark() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mark
}

// Renew changes the mark: a blob is not here that should be.
func (s *Store) Renew() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	mark := uuid.NewString()
	if err := fsync.Replace(filepath.Join(s.dir, MarkFile), []byte(mark), 0o600); err != nil {
		return fmt.Errorf("noting that a blob is not in %s: %w", s.dir, err)
	}
	s.mark = mark
	return nil
}

func (s *Store) drafts() string { return filepath.Join(s.dir, "drafts") }
func (s *Store) parts() string  { return filepath.Join(s.dir, "parts") }

// path has a directory for each first byte: 256 of them, so that none has too many entries.
func (s *Store) path(d Digest) string { return filepath.Join(s.dir, d.hex()[:2], d.hex()) }

// Write keeps what r has, and returns its digest and size. More than most bytes are [ErrTooLarge], and nothing is kept.
func (s *Store) Write(r io.Reader, most int64) (d Digest, size int64, err error) {
	f, err := os.CreateTemp(s.drafts(), "")
	if err != nil {
		return d, 0, fmt.Errorf("keeping a blob: %w", err)
	}
	sum := sha256.New()
	size, err = io.Copy(io.MultiWriter(f, sum), io.LimitReader(r, most+1))
	if err == nil && size > most {
		err = fmt.Errorf("%w: more than %d bytes", ErrTooLarge, most)
	}
	if err == nil {
		sum.Sum(d[:0])
		err = s.name(f, d)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return Digest{}, 0, fmt.Errorf("keeping a blob: %w", errors.Join(err, absent(os.Remove(f.Name()))))
	}
	return d, size, nil
}

// name makes a finished file the blob d. Where there is one already it takes its place: the bytes are the same, and those
// of the old one may have been damaged since.
func (s *Store) name(f *os.File, d Digest) error {
	path := s.path(d)
	if err := f.Sync(); err != nil {
		return err
	}
	switch err := os.Mkdir(filepath.Dir(path), 0o700); {
	case err == nil:
		err = fsync.Dir(s.dir)
		if err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrExist):
		return err
	}
	now := time.Now()
	s.mu.Lock() // what is removed for its age is not this
	err := errors.Join(os.Chtimes(f.Name(), now, now), os.Rename(f.Name(), path))
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return fsync.Dir(filepath.Dir(path))
}

// Size returns how many bytes d has; [fs.ErrNotExist] where it is not here.
func (s *Store) Size(d Digest) (int64, error) {
	info, err := os.Stat(s.path(d))
	if err != nil {
		return 0, fmt.Errorf("looking for blob %s: %w", d, err)
	}
	return info.Size(), nil
}

// Open returns the bytes of d; [fs.ErrNotExist] where it is not here. Who reads it to its end gets [ErrDamaged] in place of
// [io.EOF] where the bytes are not those of d.
func (s *Store) Open(d Digest) (*Reader, error) {
	f, err := os.Open(s.path(d))
	if err != nil {
		return nil, fmt.Errorf("opening blob %s: %w", d, err)
	}
	return &Reader{f: f, digest: d, sum: sha256.New()}, nil
}

// Remove forgets d and what came of it, from whomever; what is not here is no error.
func (s *Store) Remove(d Digest) error {
	err := absent(os.Remove(s.path(d)))
	parts, e := filepath.Glob(s.part("*", d))
	for _, part := range parts {
		e = errors.Join(e, absent(os.Remove(part)))
	}
	if err = errors.Join(err, e); err != nil {
		return fmt.Errorf("removing blob %s: %w", d, err)
	}
	return nil
}

// RemoveOld removes the bytes of d where they were written before that time: those that somebody has written since he may be about to use.
func (s *Store) RemoveOld(d Digest, before time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return removeOld(s.path(d), before)
}

func removeOld(path string, before time.Time) error {
	info, err := os.Stat(path)
	if err == nil && info.ModTime().Before(before) {
		err = os.Remove(path)
	}
	return absent(err)
}

// Old lists the blobs in one of the 256 directories that were written before a time.
func (s *Store) Old(first byte, before time.Time) (list []Digest, err error) {
	files, err := os.ReadDir(filepath.Join(s.dir, hex.EncodeToString([]byte{first})))
	for _, f := range files {
		d, e := Parse(prefix + f.Name())
		if info, gone := f.Info(); e == nil && gone == nil && info.ModTime().Before(before) {
			list = append(list, d)
		}
	}
	if err = absent(err); err != nil {
		return nil, fmt.Errorf("listing old blobs: %w", err)
	}
	return list, nil
}

// absent is err, nil where it says that something is not there.
func absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// A Reader reads one blob, from its beginning or, with ReadAt, anywhere. Only the former is checked.
type Reader struct {
	f      *os.File
	digest Digest
	sum    hash.Hash
}

// Read returns [ErrDamaged] at the end of bytes that are not those of the digest.
func (r *Reader) Read(p []byte) (int, error) {
	n, err := r.f.Read(p)
	r.sum.Write(p[:n])
	if err == io.EOF && Digest(r.sum.Sum(nil)) != r.digest {
		return n, fmt.Errorf("reading blob %s: %w", r.digest, ErrDamaged)
	}
	return n, err
}

// ReadAt reads what is not checked: who sends pieces of a blob relies on the receiver, who knows the digest.
func (r *Reader) ReadAt(p []byte, off int64) (int, error) { return r.f.ReadAt(p, off) }

// Close closes the file.
func (r *Reader) Close() error { return r.f.Close() }
