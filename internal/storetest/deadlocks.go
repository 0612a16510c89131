package storetest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// Deadlocks counts what the server of a database had to give up, and shows what its log says of
// it. Sessions that have ended have told it all.
func Deadlocks(t testing.TB, watcher *pgx.Conn) (n int) {
	t.Helper()
	require.Eventually(t, func() (over bool) {
		err := watcher.QueryRow(t.Context(), `SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = current_database()`).Scan(&over)
		return err == nil && over
	}, 30*time.Second, 10*time.Millisecond, "the sessions end")
	var data string
	require.NoError(t, watcher.QueryRow(t.Context(), `SELECT deadlocks, current_setting('data_directory') FROM pg_stat_database WHERE datname = current_database()`).Scan(&n, &data))
	if n > 0 {
		said, err := os.ReadFile(filepath.Join(filepath.Dir(data), "postgres.log"))
		require.NoError(t, err)
		for _, report := range strings.Split(string(said), "deadlock detected")[1:] {
			t.Logf("deadlock detected%.6000s", report)
		}
	}
	return n
}
