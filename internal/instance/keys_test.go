package instance_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/instance"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/signing"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestLostKeysAreNotMadeAnew(t *testing.T) {
	t.Parallel()
	for _, left := range []string{"pg", "incarnation", "ended", "agents", "logs", "nats", "place"} {
		t.Run(left, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(dir, left), 0o700))

			_, err := instance.Open(t.Context(), instance.Options{Dir: dir, Log: slog.New(slog.DiscardHandler)}, true)

			unsafe, ok := errors.AsType[*signing.KeyFileError](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, filepath.Join(dir, "keys"), unsafe.Path)
			require.NoDirExists(t, unsafe.Path)
		})
	}
}

func TestKeysAreNotMadeForTheDatabaseOfAnother(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	o := instance.Options{Dir: t.TempDir(), DatabaseURL: url, Log: slog.New(slog.DiscardHandler)}
	first, err := instance.Visit(t.Context(), o, true)
	require.NoError(t, err)
	require.NoError(t, first.Close(t.Context()))
	o.Dir = t.TempDir()

	_, err = instance.Visit(t.Context(), o, true)

	require.ErrorContains(t, err, "the database belongs to instance "+string(first.Keys.InstanceID())+", whose keys are not in "+o.Dir)
	require.NoDirExists(t, filepath.Join(o.Dir, "keys"))
}
