package postgres_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store/postgres"
)

// watched collects the arguments and environments of every process on this machine until its result is called, and
// counts the server programs that it saw.
func watched(t *testing.T) (all func() (seen string, programs int)) {
	t.Helper()
	texts, pids := map[string]bool{}, map[string]bool{}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			for _, file := range []string{"cmdline", "environ"} {
				paths, _ := filepath.Glob("/proc/[0-9]*/" + file) // fails only on a malformed pattern
				for _, path := range paths {
					text, _ := os.ReadFile(path) // it may have ended
					texts[string(text)] = true
					if strings.Contains(string(text), "--single") || strings.Contains(string(text), "initdb") {
						pids[filepath.Dir(path)] = true
					}
				}
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	return func() (string, int) {
		close(stop)
		<-done
		var b strings.Builder
		for text := range texts {
			b.WriteString(text + "\n")
		}
		return b.String(), len(pids)
	}
}

// The passwords are in the one file and nowhere else, whatever the operator lets the server log; not even what the
// server keeps of them is in a log.
func TestPasswordsAreInTheKeyDirectoryOnly(t *testing.T) {
	t.Parallel()
	cfg := postgres.Config{Dir: newDir(t)}
	file := filepath.Join(cfg.Dir, "keys", "pgpass")
	secrets := func() (list []string) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			field := strings.Split(strings.TrimSpace(line), ":")
			require.Regexp(t, `^[0-9a-f]{64}$`, field[4])
			list = append(list, field[4])
		}
		require.Len(t, list, 2)
		return list
	}
	all := watched(t)
	require.NoError(t, startCluster(t, cfg).Close(t.Context()))
	passwords := secrets()
	require.NoError(t, os.WriteFile(filepath.Join(cfg.Dir, "pg", "user.conf"), []byte("log_statement = 'all'\nlog_min_duration_statement = 0\nlog_connections = on\n"), 0o644))
	require.NoError(t, os.Remove(file))

	c := startCluster(t, cfg)
	query(t, c, "SELECT 1")

	seen, programs := all()
	passwords = append(passwords, secrets()...)
	require.GreaterOrEqual(t, programs, 3, "initdb and both runs without a server were seen")
	for _, password := range passwords {
		require.NotContains(t, seen, password)
		require.NotContains(t, c.URL(), password)
	}
	require.NoError(t, c.Close(t.Context()))
	require.NoError(t, filepath.WalkDir(cfg.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || path == file {
			return err
		}
		text, err := os.ReadFile(path)
		for _, password := range passwords {
			require.NotContains(t, string(text), password, path)
		}
		if strings.HasPrefix(entry.Name(), "postgres.log") {
			require.Contains(t, string(text), "SELECT 1", "it logs statements")
			require.NotContains(t, string(text), "SCRAM-SHA-256$")
		}
		return err
	}))
}
