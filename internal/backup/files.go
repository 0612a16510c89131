package backup

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"filippo.io/age"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/fsync"
	"github.com/spawnmesh/spawnmesh/internal/hostfile"
)

func slicesHas(files []File, name string) bool {
	return slices.ContainsFunc(files, func(f File) bool { return f.Name == name })
}

// copyTree copies what, a file or a directory with all files below it. What is not there, or goes
// meanwhile, is left out; so is what is neither, and what is not for a backup.
func copyTree(from, to, what string) error {
	return filepath.WalkDir(filepath.Join(from, what), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch target := filepath.Join(to, name); {
		case slices.Contains(left, name) && d.IsDir():
			return fs.SkipDir
		case slices.Contains(left, name):
			return nil
		case d.IsDir():
			return os.MkdirAll(target, 0o700)
		case d.Type().IsRegular():
			return copyFile(path, target)
		}
		return nil
	})
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}

// seal writes the keys in dir, encrypted. The passwords of the private database are not among
// them: a restored one has others.
func seal(dir, to string, recipient age.Recipient) (err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var sealed bytes.Buffer
	lock, err := age.Encrypt(&sealed, recipient)
	if err != nil {
		return fmt.Errorf("encrypting the keys: %w", err)
	}
	all := tar.NewWriter(lock)
	for _, e := range entries {
		if name := e.Name(); e.Type().IsRegular() && name != "pgpass" && !strings.HasSuffix(name, ".new") {
			if err := addKey(all, dir, name); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(all.Close(), lock.Close()); err != nil {
		return fmt.Errorf("encrypting the keys: %w", err)
	}
	return fsync.Replace(to, sealed.Bytes(), 0o600)
}

func addKey(all *tar.Writer, dir, name string) error {
	f, err := hostfile.Open(filepath.Join(dir, name), hostfile.Rule{Secret: true, NoLink: true})
	if err != nil {
		return fmt.Errorf("reading a key: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		return fmt.Errorf("reading a key: %w", err)
	}
	if err := all.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text))}); err != nil {
		return err
	}
	_, err = all.Write(text)
	return err
}

// open returns the key files in a sealed file by their names.
func open(path string, identity age.Identity) (map[string][]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	plain, err := age.Decrypt(f, identity)
	if _, wrong := errors.AsType[*age.NoIdentityMatchError](err); wrong {
		return nil, commands.Refuse(commands.Validation, "the keys in %s cannot be opened: this is not the passphrase or the identity that they were encrypted for; nothing was changed", path).
			Hinting("try again with another one")
	}
	if err != nil {
		return nil, fmt.Errorf("opening the keys in %s: %w", path, err)
	}
	keys := map[string][]byte{}
	for all := tar.NewReader(plain); ; {
		h, err := all.Next()
		if errors.Is(err, io.EOF) {
			return keys, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the keys in %s: %w", path, err)
		}
		if h.Name != filepath.Base(h.Name) || h.Typeflag != tar.TypeReg {
			return nil, fmt.Errorf("reading the keys in %s: %q is no name of a key", path, h.Name)
		}
		if keys[h.Name], err = io.ReadAll(all); err != nil {
			return nil, fmt.Errorf("reading the keys in %s: %w", path, err)
		}
	}
}
