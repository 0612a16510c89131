package instance_test

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/instance"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/signing"
)

// A copy does not run while its original is on this host; a directory that was moved, or
// whose original is gone or is somebody else's, is no copy.
func TestACopyDoesNotRunBesideItsOriginal(t *testing.T) {
	t.Parallel()
	rename := func(t *testing.T, from, to string) { require.NoError(t, os.Rename(from, to)) }
	for name, test := range map[string]struct {
		run    string // data, the original; or copy
		before func(t *testing.T, data, moved string)
		want   commands.Code
	}{
		"a copy": {"copy", nil, commands.Conflict},
		"a copy whose original has lost a key": {"copy", func(t *testing.T, data, _ string) {
			require.NoError(t, os.Remove(filepath.Join(data, "keys", "link.json")))
		}, commands.Conflict},
		"the original": {"data", nil, ""},
		"the original by another name": {"link", func(t *testing.T, data, _ string) {
			require.NoError(t, os.Symlink(data, filepath.Join(filepath.Dir(data), "link")))
		}, ""},
		"what was moved":                  {"moved", rename, ""},
		"a copy whose original was moved": {"copy", rename, ""},
		"a copy whose original is gone":   {"copy", func(t *testing.T, data, _ string) { require.NoError(t, os.RemoveAll(data)) }, ""},
		"a copy where another one is now": {"copy", func(t *testing.T, data, moved string) {
			rename(t, data, moved)
			_, err := signing.CreateKeys(filepath.Join(data, "keys"))
			require.NoError(t, err)
		}, ""},
		"a copy that was never told its place": {"copy", func(t *testing.T, data, _ string) {
			require.NoError(t, os.Remove(filepath.Join(filepath.Dir(data), "copy", "place")))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := t.TempDir()
			data, dup := filepath.Join(base, "data"), filepath.Join(base, "copy")
			o := instance.Options{Dir: data, DatabaseURL: pgtest.URL(t), Log: slog.New(slog.DiscardHandler)}
			run := func(dir string) error {
				o.Dir = dir
				in, err := instance.Open(t.Context(), o, true)
				if err == nil {
					err = in.Close(t.Context())
				}
				return err
			}
			require.NoError(t, run(data))
			require.NoError(t, exec.CommandContext(t.Context(), "cp", "-a", data, dup).Run())
			if test.before != nil {
				test.before(t, data, filepath.Join(base, "moved"))
			}

			err := run(filepath.Join(base, test.run))
			again := run(filepath.Join(base, test.run))

			require.Equal(t, test.want, commands.CodeOf(err))
			require.Equal(t, test.want, commands.CodeOf(again))
			if test.want == "" {
				return
			}
			require.EqualError(t, err, dup+" is a copy of "+data+", which is on this host, too; nothing was started")
			refused, ok := errors.AsType[*commands.Refused](err)
			require.True(t, ok)
			require.Equal(t, "start the instance there; to go on with the copy, first move "+data+" away: what still runs of it is then ended", refused.Hint)
			if test.before == nil {
				require.NoError(t, run(data), "the original still does")
			}
			in, err := instance.Visit(t.Context(), o, false)
			require.NoError(t, err, "a copy may be looked at")
			require.NoError(t, in.Close(t.Context()))
		})
	}
}
