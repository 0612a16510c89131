package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"filippo.io/age"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/fsync"
)

const (
	manifestFile = "manifest.json"
	format       = 1
)

// A Manifest says what a backup is of, and what it consists of.
type Manifest struct {
	Format   int       `json:"format"`
	Version  string    `json:"version"` // of the program
	Instance string    `json:"instance"`
	At       time.Time `json:"at"`
	Hub      bool      `json:"hub"`
	Postgres int       `json:"postgres"` // major version
	Files    []File    `json:"files"`
}

// A File is one of a backup.
type File struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Size is how much there is to be read.
func (m Manifest) Size() (n int64) {
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// write lists what is in dir, in the manifest there.
func (m *Manifest) write(dir string) (err error) {
	if m.Files, err = list(dir); err != nil {
		return err
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return fsync.Replace(filepath.Join(dir, manifestFile), append(text, '\n'), 0o600)
}

// list returns all files below dir but the manifest, in the order of their names.
func list(dir string) (files []File, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || name == manifestFile {
			return err
		}
		f := File{Name: filepath.ToSlash(name)}
		f.Size, f.SHA256, err = digest(path)
		files = append(files, f)
		return err
	})
	return files, err
}

func digest(path string) (size int64, sum string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	h := sha256.New()
	size, err = io.Copy(h, f)
	return size, hex.EncodeToString(h.Sum(nil)), err
}

func damaged(dir, format string, args ...any) error {
	r := commands.Refuse(commands.Validation, format, args...)
	r.Why = "the backup " + dir + " cannot be used: " + r.Why
	return r.Hinting("use another backup; nothing was changed")
}

// Verify reads a backup whole and compares it with its manifest, looks into the dump with
// pg_restore, and opens the keys where there is an identity.
func Verify(ctx context.Context, dir, binDir string, identity age.Identity) (m Manifest, err error) {
	raw, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return m, damaged(dir, "there is no %s", manifestFile)
	}
	if err != nil {
		return m, err
	}
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(&m); err != nil {
		return m, damaged(dir, "%s cannot be read: %v", manifestFile, err)
	}
	if m.Format != format {
		return m, damaged(dir, "it has format %d, and this program knows %d", m.Format, format)
	}
	files, err := list(dir)
	if err != nil {
		return m, err
	}
	if err := compare(dir, m.Files, files); err != nil {
		return m, err
	}
	if err := look(ctx, binDir, m.Postgres, filepath.Join(dir, dumpFile)); err != nil {
		return m, err
	}
	if identity == nil {
		return m, nil
	}
	_, err = open(filepath.Join(dir, keysFile), identity)
	return m, err
}

// compare says what is not as it was written.
func compare(dir string, want, got []File) error {
	there := map[string]File{}
	for _, f := range got {
		there[f.Name] = f
	}
	for _, f := range want {
		switch found, ok := there[f.Name]; {
		case !ok:
			return damaged(dir, "%s is missing", f.Name)
		case found != f:
			return damaged(dir, "%s is not as it was written", f.Name)
		}
		delete(there, f.Name)
	}
	for name := range there {
		return damaged(dir, "%s is not of it", name)
	}
	for _, name := range []string{dumpFile, keysFile} {
		if !slicesHas(want, name) {
			return damaged(dir, "it has no %s", name)
		}
	}
	return nil
}
