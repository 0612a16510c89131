package backup_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/backup"
	"github.com/spawnmesh/spawnmesh/internal/instance"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/signing"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// made is an instance with a database of its own, and who may read its backups.
func made(t *testing.T) (instance.Options, *age.X25519Identity) {
	t.Helper()
	o := empty(t)
	in, err := instance.Visit(t.Context(), o, true)
	require.NoError(t, err)
	require.NoError(t, in.Close(t.Context()))
	for name, text := range map[string]string{"policy.yaml": "version: 1\n", "config.yaml": "slots: 3\n", "place": o.Dir, "environment": "DATABASE_URL=secret\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(o.Dir, name), []byte(text), 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(o.Dir, "keys", "pgpass"), []byte("password"), 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(o.Dir, "logs", "c", "id"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(o.Dir, "logs", "c", "id", "1"), []byte("said"), 0o600))
	for _, name := range []string{"00/11", "parts/11.c", "drafts/1", "mark"} {
		path := filepath.Join(o.Dir, "blobs", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte("bytes"), 0o600))
	}
	id, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	return o, id
}

func empty(t *testing.T) instance.Options {
	return instance.Options{Dir: filepath.Join(t.TempDir(), "data"), DatabaseURL: pgtest.URL(t), Log: slog.New(slog.DiscardHandler)}
}

// nothingBeside requires that no draft is left beside path.
func nothingBeside(t *testing.T, path string, want int) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, want)
}

func TestWhatIsRestoredIsWhatWasThere(t *testing.T) {
	t.Parallel()
	o, id := made(t)
	dir := filepath.Join(t.TempDir(), "backup")

	m, err := backup.Make(t.Context(), o, dir, "v1", id.Recipient(), nil)

	require.NoError(t, err)
	nothingBeside(t, dir, 1)
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	require.NoFileExists(t, filepath.Join(dir, "environment"))
	require.NoDirExists(t, filepath.Join(dir, "keys"), "keys are encrypted only")
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := d.Info()
		require.NoError(t, err)
		require.Zero(t, info.Mode().Perm()&0o077, "%s is for its owner alone", path)
		return nil
	}))
	to := empty(t)
	got, err := backup.Restore(t.Context(), dir, to, id)
	require.NoError(t, err)
	require.Equal(t, m.Files, got.Files)
	for _, name := range []string{"parts", "drafts", "mark"} {
		_, err := os.Lstat(filepath.Join(dir, "blobs", name))
		require.ErrorIs(t, err, fs.ErrNotExist, name)
	}
	nothingBeside(t, to.Dir, 1)
	require.NoFileExists(t, filepath.Join(to.Dir, "keys", "pgpass"), "a restored database has other passwords")
	keys, err := signing.LoadKeys(filepath.Join(to.Dir, "keys"))
	require.NoError(t, err)
	require.Equal(t, m.Instance, string(keys.InstanceID()))
	for _, name := range []string{"policy.yaml", "config.yaml", "place", "logs/c/id/1", "blobs/00/11"} {
		want, err := os.ReadFile(filepath.Join(o.Dir, name))
		require.NoError(t, err)
		raw, err := os.ReadFile(filepath.Join(to.Dir, name))
		require.NoError(t, err, name)
		require.Equal(t, string(want), string(raw))
	}
	in, err := instance.Visit(t.Context(), to, false)
	require.NoError(t, err)
	require.NoError(t, in.Close(t.Context()))
}

// Nothing is restored over something, with the wrong secret, or from what is not as it was written.
func TestWhatIsNotRestored(t *testing.T) {
	t.Parallel()
	o, id := made(t)
	dir := filepath.Join(t.TempDir(), "backup")
	_, err := backup.Make(t.Context(), o, dir, "v1", id.Recipient(), nil)
	require.NoError(t, err)
	refused := func(to instance.Options, code commands.Code, says string, with age.Identity) {
		t.Helper()
		_, err := backup.Restore(t.Context(), dir, to, with)
		require.ErrorContains(t, err, says)
		require.Equal(t, code, commands.CodeOf(err))
	}
	to := empty(t)
	other, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	words, err := age.NewScryptIdentity("a passphrase of nobody")
	require.NoError(t, err)
	refused(to, commands.Validation, "this is not the passphrase or the identity", other)
	refused(to, commands.Validation, "this is not the passphrase or the identity", words)
	refused(o, commands.Conflict, "has an instance already", id)
	used := o
	used.DatabaseURL = to.DatabaseURL
	refused(used, commands.Conflict, o.Dir+" is not empty; nothing was changed", id)
	_, err = backup.Make(t.Context(), o, dir, "v1", id.Recipient(), nil)
	require.ErrorContains(t, err, dir+" is not empty; nothing was changed")

	raw, err := os.ReadFile(filepath.Join(dir, "database.dump"))
	require.NoError(t, err)
	raw[len(raw)/2] ^= 1
	require.NoError(t, os.WriteFile(filepath.Join(dir, "database.dump"), raw, 0o600))
	refused(to, commands.Validation, "database.dump is not as it was written", id)
	raw[len(raw)/2] ^= 1
	require.NoError(t, os.WriteFile(filepath.Join(dir, "database.dump"), raw, 0o600))
	more := filepath.Join(dir, "logs", "more")
	require.NoError(t, os.WriteFile(more, nil, 0o600))
	refused(to, commands.Validation, "logs/more is not of it", id)
	require.NoError(t, os.Remove(more))
	require.NoError(t, os.Rename(filepath.Join(dir, "policy.yaml"), filepath.Join(t.TempDir(), "x")))
	refused(to, commands.Validation, "policy.yaml is missing", id)
	require.NoError(t, os.Remove(filepath.Join(dir, "manifest.json")))
	refused(to, commands.Validation, "there is no manifest.json", id)
	require.NoError(t, os.Chmod(dir, 0o777))
	refused(to, commands.Internal, "can be written by everybody", id)
	require.NoDirExists(t, to.Dir)
	nothingBeside(t, to.Dir, 0)
}

// Whoever knows for whom a backup is encrypted can make a file of keys for it.
func TestKeysThatAreNotOfTheBackup(t *testing.T) {
	t.Parallel()
	o, id := made(t)
	dir := filepath.Join(t.TempDir(), "backup")
	_, err := backup.Make(t.Context(), o, dir, "v1", id.Recipient(), nil)
	require.NoError(t, err)
	other, _ := made(t)
	others := filepath.Join(t.TempDir(), "others")
	_, err = backup.Make(t.Context(), other, others, "v1", id.Recipient(), nil)
	require.NoError(t, err)
	foreign, err := os.ReadFile(filepath.Join(others, "keys.age"))
	require.NoError(t, err)
	for says, keys := range map[string][]byte{"and the keys to instance": foreign, "is no name of a key": sealed(t, id, "../x"), `"keys/x" is no name`: sealed(t, id, "keys/x")} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "keys.age"), keys, 0o600))
		listed(t, dir, "keys.age")
		to := empty(t)

		_, err := backup.Restore(t.Context(), dir, to, id)

		require.ErrorContains(t, err, says)
		require.NoDirExists(t, to.Dir)
		nothingBeside(t, to.Dir, 0)
	}
}

// sealed is a file of keys that has one of this name.
func sealed(t *testing.T, id *age.X25519Identity, name string) []byte {
	t.Helper()
	var all bytes.Buffer
	lock, err := age.Encrypt(&all, id.Recipient())
	require.NoError(t, err)
	w := tar.NewWriter(lock)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: 1}))
	_, err = w.Write([]byte("x"))
	require.NoError(t, errors.Join(err, w.Close(), lock.Close()))
	return all.Bytes()
}

// listed puts a file as it is now into the manifest of a backup.
func listed(t *testing.T, dir, name string) {
	t.Helper()
	path := filepath.Join(dir, "manifest.json")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var m backup.Manifest
	require.NoError(t, json.Unmarshal(text, &m))
	raw, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	sum := sha256.Sum256(raw)
	at := slices.IndexFunc(m.Files, func(f backup.File) bool { return f.Name == name })
	m.Files[at] = backup.File{Name: name, Size: int64(len(raw)), SHA256: hex.EncodeToString(sum[:])}
	text, err = json.Marshal(m)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o600))
}

// A backup that cannot be made leaves nothing, and no password is said.
func TestABackupThatCannotBeMadeLeavesNothing(t *testing.T) {
	t.Parallel()
	o, id := made(t)
	dir := filepath.Join(t.TempDir(), "backup")
	o.BinDir = t.TempDir()
	u, err := url.Parse(o.DatabaseURL)
	require.NoError(t, err)
	_, err = backup.Make(t.Context(), o, dir, "v1", id.Recipient(), nil)

	require.ErrorContains(t, err, "there is no pg_dump of PostgreSQL")
	require.NoDirExists(t, dir)
	nothingBeside(t, dir, 0)
	if password, ok := u.User.Password(); ok {
		require.NotContains(t, err.Error(), password)
	}
}
