package backup

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Arguments are seen by everybody on the host: no password is among them.
func TestNoPasswordIsAnArgument(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"postgres://me:hunter22@db:5432/mesh?sslmode=require":    "postgres://me@db:5432/mesh?sslmode=require",
		"postgresql://me@db/mesh?password=hunter22&pool_max=3":   "postgresql://me@db/mesh",
		"postgres://me:x@/mesh?host=/a%20b&password=hunter22":    "postgres://me@/mesh?host=%2Fa%20b",
		"postgres://me:hunter22@db/m?statement_cache_capacity=0": "postgres://me@db/m",
	} {
		plain, password, err := withoutPassword(address)
		require.NoError(t, err)
		require.Equal(t, want, plain)
		require.Equal(t, "hunter22", password)
	}
	_, _, err := withoutPassword("host=db password=hunter22")
	require.ErrorContains(t, err, "DATABASE_URL is no address that backups can use")
	require.NotContains(t, err.Error(), "hunter22")
	require.Equal(t, ": relation is gone", complaints("pg_restore: error: relation is gone\nCONTEXT: COPY inbox, line 1: secret\n"))
}
