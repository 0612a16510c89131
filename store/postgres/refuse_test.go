package postgres_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store/postgres"
)

func TestClusterOfAnotherMajorIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	c := startCluster(t, postgres.Config{Dir: dir})
	binDir, err := postgres.Find(t.Context(), "")
	require.NoError(t, err)
	require.NoError(t, c.Close(t.Context()))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pg", "PG_VERSION"), []byte("99\n"), 0o600))
	before := tree(t, dir)

	_, err = postgres.Start(t.Context(), postgres.Config{Dir: dir})
	_, chosenErr := postgres.Start(t.Context(), postgres.Config{Dir: dir, BinDir: binDir})

	var notFound *postgres.NotFoundError
	require.ErrorAs(t, err, &notFound)
	require.Equal(t, 99, notFound.Major)
	require.ErrorContains(t, err, "no PostgreSQL 99 server found; only that version can open data made by it (nothing was changed)")
	require.ErrorContains(t, chosenErr, "the data was made by 99")
	require.Equal(t, before, tree(t, dir))
}

func TestDataThatIsNoClusterIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "pg"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pg", "precious"), []byte("x"), 0o600))
	before := tree(t, dir)

	_, err := postgres.Start(t.Context(), postgres.Config{Dir: dir})

	require.ErrorContains(t, err, "is no PostgreSQL cluster")
	require.Equal(t, before, tree(t, dir))
}

// Root's server runs as another user, who has to get in. Anybody else's runs as themselves and gets in anyway.
func TestParentThatKeepsTheServerOutIsNamed(t *testing.T) {
	t.Parallel()
	parent := filepath.Join(newDir(t), "private")
	require.NoError(t, os.Mkdir(parent, 0o700))

	c, err := postgres.Start(t.Context(), postgres.Config{Dir: filepath.Join(parent, "data")})

	if os.Geteuid() != 0 {
		require.NoError(t, err)
		require.NoError(t, c.Close(t.Context()))
		return
	}
	require.ErrorContains(t, err, "who cannot enter "+parent+" (mode 700): use a data directory such as /var/lib/spawnmesh")
	require.NoDirExists(t, filepath.Join(parent, "data", "pg"))
}

func TestUserThatCannotRunTheServer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ user, want string }{
		"root":            {"root", "PostgreSQL refuses root"},
		"an unknown user": {"no-such-user", `looking up the user "no-such-user"`},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := postgres.Start(t.Context(), postgres.Config{Dir: newDir(t), User: tt.user})

			if os.Geteuid() != 0 {
				require.NoError(t, err, "User is for root only")
				require.NoError(t, c.Close(t.Context()))
				return
			}
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestServerRunsAsTheChosenUserAndStaysWithIt(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	cfg := postgres.Config{Dir: dir, User: "nobody"}
	require.NoError(t, startCluster(t, cfg).Close(t.Context()))
	owner := ownerOf(t, filepath.Join(dir, "pg"))
	cfg.User = "postgres"

	c := startCluster(t, cfg)

	require.Equal(t, owner, ownerOf(t, filepath.Join(dir, "pg")))
	require.Equal(t, owner, ownerOf(t, filepath.Join(dir, "run", ".s.PGSQL.5432")), "who runs the server now")
	require.Equal(t, "1", query(t, c, "SELECT 1"))
	if os.Geteuid() != 0 {
		require.Equal(t, os.Geteuid(), owner)
	}
}
