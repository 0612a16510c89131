package store_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/store"
)

// The script with which the containers make the program's role: it is no superuser, has all that an
// instance needs, and the superuser has no password afterwards.
func TestTheRoleOfTheContainers(t *testing.T) {
	t.Parallel()
	base := pgtest.URL(t)
	admin := connect(t, base)
	for _, sql := range []string{`DROP DATABASE IF EXISTS contained`, `DROP ROLE IF EXISTS contained`, `CREATE ROLE boss SUPERUSER LOGIN PASSWORD 's3cret'`} {
		_, err := admin.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		for _, sql := range []string{`DROP DATABASE IF EXISTS contained WITH (FORCE)`, `DROP ROLE IF EXISTS contained`, `DROP ROLE IF EXISTS boss`} {
			conn, err := pgx.Connect(context.Background(), pgtest.Admin(base))
			require.NoError(t, err)
			_, err = conn.Exec(context.Background(), sql)
			require.NoError(t, err)
			require.NoError(t, conn.Close(context.Background()))
		}
	})
	pc, err := pgx.ParseConfig(base)
	require.NoError(t, err)
	make := exec.CommandContext(t.Context(), "sh", "-e", "../scripts/container/role")
	make.Env = append(os.Environ(), "PGHOST="+pc.Host, fmt.Sprint("PGPORT=", pc.Port), "PGPASSWORD=s3cret", "POSTGRES_USER=boss", "POSTGRES_PASSWORD=s3cret", "MESH_ROLE=contained")

	out, err := make.CombinedOutput()

	require.NoError(t, err, "%s", out)
	require.NotContains(t, string(out), "s3cret")
	var super, without bool
	require.NoError(t, admin.QueryRow(t.Context(), `SELECT rolsuper OR rolcreaterole OR rolcreatedb FROM pg_roles WHERE rolname = 'contained'`).Scan(&super))
	require.False(t, super)
	require.NoError(t, admin.QueryRow(t.Context(), `SELECT rolpassword IS NULL FROM pg_authid WHERE rolname = 'boss'`).Scan(&without))
	require.True(t, without, "nobody logs in as the superuser")
	own, err := url.Parse(base)
	require.NoError(t, err)
	own.User, own.Path = url.UserPassword("contained", "s3cret"), "/contained"
	query := own.Query()
	query.Del("passfile")
	own.RawQuery = query.Encode()
	require.NoError(t, store.Prepare(t.Context(), own.String()))
}
