package signing

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKeysAreCreatedOnceAndLoadedAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	_, err := LoadKeys(dir)
	require.ErrorIs(t, err, ErrNoKeys)

	made, err := CreateKeys(dir)
	require.NoError(t, err)
	_, again := CreateKeys(dir)
	loaded, err := LoadKeys(dir)

	require.NoError(t, err)
	require.ErrorContains(t, again, "already holds keys")
	require.Equal(t, made.InstanceID(), loaded.InstanceID())
	require.Equal(t, made.Signing.KeyID(), loaded.Signing.KeyID())
	require.Len(t, map[string]bool{string(made.Identity.Public()): true, string(made.Signing.Public()): true,
		string(made.Sealing.PublicKey().Bytes()): true, string(made.LinkSeed): true}, 4, "four different keys")
	info, err := os.Stat(filepath.Join(dir, signingFile))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestUnsafeKeyFilesAreRefused(t *testing.T) {
	tests := map[string]struct {
		change func(t *testing.T, path string)
		want   string
	}{
		"readable by others":    {func(t *testing.T, p string) { require.NoError(t, os.Chmod(p, 0o644)) }, "run: chmod 600 "},
		"readable by the group": {func(t *testing.T, p string) { require.NoError(t, os.Chmod(p, 0o640)) }, "run: chmod 600 "},
		"a symbolic link": {func(t *testing.T, p string) {
			require.NoError(t, os.Rename(p, p+".real"))
			require.NoError(t, os.Symlink(p+".real", p))
		}, "symbolic link"},
		"a FIFO": {func(t *testing.T, p string) {
			require.NoError(t, os.Remove(p))
			require.NoError(t, syscall.Mkfifo(p, 0o600))
		}, "not a regular file"},
		"a directory": {func(t *testing.T, p string) {
			require.NoError(t, os.Remove(p))
			require.NoError(t, os.Mkdir(p, 0o700))
		}, "not a regular file"},
		"empty":     {func(t *testing.T, p string) { require.NoError(t, os.Truncate(p, 0)) }, "is empty"},
		"truncated": {func(t *testing.T, p string) { require.NoError(t, os.Truncate(p, 20)) }, "is damaged"},
		"missing":   {func(t *testing.T, p string) { require.NoError(t, os.Remove(p)) }, "lacks some of its keys"},
		"too large": {func(t *testing.T, p string) { require.NoError(t, os.Truncate(p, 1<<20)) }, "too large"},
	}
	for name, tt := range tests {
		for _, file := range []string{signingFile, identityFile} {
			t.Run(name+" "+file, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "keys")
				_, err := CreateKeys(dir)
				require.NoError(t, err)
				tt.change(t, filepath.Join(dir, file))

				_, got := LoadKeys(dir)
				_, made := CreateKeys(dir)

				require.ErrorContains(t, got, tt.want)
				require.ErrorContains(t, made, tt.want, "keys are never made anew in place of damaged ones")
			})
		}
	}
}

// Also what only root can give away is looked at, and every directory on the way.
func TestAKeyThatOthersCouldReplaceIsRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		at, why string
		change  func(path string) error
	}{
		"a directory for everybody": {".", "could be replaced by others: ", func(path string) error { return os.Chmod(path, 0o777) }},
		"the key directory, too":    {"keys", "could be replaced by others: ", func(path string) error { return os.Chmod(path, 0o702) }},
		"a key of another user": {"keys/" + signingFile, "belongs to user 65534", func(path string) error {
			if os.Geteuid() != 0 {
				return os.Chmod(path, 0o604) // what a user can do to his own
			}
			return os.Chown(path, 65534, -1)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			base := filepath.Join(t.TempDir(), "data")
			require.NoError(t, os.Mkdir(base, 0o700))
			_, err := CreateKeys(filepath.Join(base, "keys"))
			require.NoError(t, err)
			require.NoError(t, tt.change(filepath.Join(base, tt.at)))

			_, err = LoadKeys(filepath.Join(base, "keys"))

			var unsafe *KeyFileError
			require.ErrorAs(t, err, &unsafe)
			if os.Geteuid() == 0 {
				require.Contains(t, unsafe.Why, tt.why)
			}
			require.Regexp(t, "^run: ch(mod|own) .*"+filepath.Base(tt.at), unsafe.Hint)
		})
	}
}

// What is typed of the id of a new key is taken for no flag. One of 64 ids would begin with "-".
func TestTheIDOfANewKeyBeginsLikeNoFlag(t *testing.T) {
	t.Parallel()
	for range 1000 {
		s, err := NewSigner(newSeed())
		require.NoError(t, err)
		require.False(t, strings.HasPrefix(string(s.KeyID()), keyPrefix+"-"), s.KeyID())
	}
}
