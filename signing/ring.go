package signing

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/spawnmesh/spawnmesh/internal/fsync"
)

// A Ring finds the signing keys of one instance by their ids. Which of them signs
// is decided by the instance's database; the ring only keeps them. It may be used
// from several goroutines, and by several processes with the same directory.
type Ring struct {
	Identity *Signer // signs key sets, together with a signing key
	dir      string

	mu   sync.Mutex // guards byID
	byID map[KeyID]*Signer
}

// NewRing returns the ring of an instance with these keys, whose key directory is
// dir.
func NewRing(dir string, identity, first *Signer) *Ring {
	return &Ring{Identity: identity, dir: dir, byID: map[KeyID]*Signer{first.KeyID(): first}}
}

// Signer returns the key named id. A process that did not make it reads its file.
func (r *Ring) Signer(id KeyID) (*Signer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.byID[id]; s != nil {
		return s, nil
	}
	// Settle may move the key from the second place to the first meanwhile.
	for _, path := range []string{r.path(id), filepath.Join(r.dir, signingFile)} {
		seed, err := readKey(path, signingFile)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		s, err := NewSigner(seed)
		if err != nil {
			return nil, err
		}
		if r.byID[s.KeyID()] = s; s.KeyID() == id {
			return s, nil
		}
	}
	return nil, &KeyFileError{r.path(id), missing, "restore the key directory from a backup that is as new as the database's"}
}

// Make makes a signing key in a file of its own. It is stored when Make returns,
// and signs nothing before the database says so.
func (r *Ring) Make() (*Signer, error) {
	seed := newSeed()
	s, err := NewSigner(seed)
	if err != nil {
		return nil, err
	}
	if err := writeSeed(r.path(s.KeyID()), signingFile, seed); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byID[s.KeyID()] = s
	return s, nil
}

// Settle removes the files of keys that nothing needs any more. The first key file
// is replaced by the one of current in one step: at any moment there is a key in it.
func (r *Ring) Settle(current KeyID, gone []KeyID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := filepath.Join(r.dir, signingFile)
	seed, err := readKey(first, signingFile)
	if err != nil {
		return err
	}
	s, err := NewSigner(seed)
	if err != nil {
		return err
	}
	if slices.Contains(gone, s.KeyID()) {
		if err := os.Rename(r.path(current), first); err != nil {
			return fmt.Errorf("putting the new signing key in the place of the old one: %w", err)
		}
	}
	for _, id := range gone {
		delete(r.byID, id)
		if err := os.Remove(r.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing an old signing key: %w", err)
		}
	}
	return fsync.Dir(r.dir)
}

// path is where a key that is not the first one is kept.
func (r *Ring) path(id KeyID) string {
	return filepath.Join(r.dir, "signing-"+strings.TrimPrefix(string(id), keyPrefix)+".json")
}
