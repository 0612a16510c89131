package postgres

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// realPrograms are the ones of this machine.
func realPrograms(t *testing.T) programs {
	t.Helper()
	p, err := findFor(t.Context(), "", 0)
	require.NoError(t, err)
	return p
}

func TestErrorWithoutProgramsSaysWhatToDo(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	places := []candidate{{"PATH", ""}, {"pg_config --bindir", empty}}

	_, err := find(t.Context(), slices.Values(places), 0)

	var notFound *NotFoundError
	require.ErrorAs(t, err, &notFound)
	require.Equal(t, []string{"PATH: no postgres", "pg_config --bindir: no " + empty + "/postgres"}, notFound.Looked)
	require.Regexp(t, `^no PostgreSQL server found \(needs the programs postgres and initdb, version 15 or newer\)
do one of:
  in a checkout    scripts/ensure-postgres
  Debian, Ubuntu   apt-get update && apt-get install -y --no-install-recommends postgresql
(  .*\n)+  no local server  DATABASE_URL=<the address of a server>
looked at:
  PATH: no postgres
  pg_config --bindir: no /.*/postgres$`, err.Error())
}

func TestFindLooksForTheMajorOfTheCluster(t *testing.T) {
	t.Parallel()
	have := realPrograms(t)
	links := t.TempDir()
	require.NoError(t, os.Symlink(have.postgres(), filepath.Join(links, "postgres")))
	broken := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(broken, "postgres"), []byte("#!/bin/sh\necho missing library >&2; exit 127"), 0o755))
	for name, tt := range map[string]struct {
		major  int
		places []candidate
		looked []string // nil: found
	}{
		"a link leads to the whole installation": {0, []candidate{{"links", links}}, nil},
		"the cluster's own version":              {have.major, []candidate{{"links", links}}, nil},
		"the first that fits":                    {0, []candidate{{"none", ""}, {"broken", broken}, {"real", have.dir}}, nil},
		"another version is no substitute":       {have.major + 1, []candidate{{"real", have.dir}}, []string{"real: .* is version \\d+$"}},
		"a program that does not run":            {0, []candidate{{"broken", broken}}, []string{"broken: .*postgres --version: exit status 127: missing library$"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := find(t.Context(), slices.Values(tt.places), tt.major)

			if tt.looked == nil {
				require.NoError(t, err)
				require.Equal(t, have, got)
				return
			}
			var notFound *NotFoundError
			require.ErrorAs(t, err, &notFound)
			require.Equal(t, tt.major, notFound.Major)
			require.Len(t, notFound.Looked, len(tt.looked))
			for i, want := range tt.looked {
				require.Regexp(t, want, notFound.Looked[i])
			}
		})
	}
}

func TestChosenDirectoryIsTheOnlyOne(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	dir := filepath.Join(t.TempDir(), "data")

	_, err := Start(t.Context(), Config{Dir: dir, BinDir: empty})

	require.ErrorContains(t, err, "the PostgreSQL programs in "+empty+" were asked for and do not fit")
	require.NoDirExists(t, dir)

	got, err := findFor(t.Context(), realPrograms(t).dir, 0)
	require.NoError(t, err)
	require.Equal(t, realPrograms(t), got)
}

func TestCancelledSearchIsNotANotFound(t *testing.T) {
	t.Parallel()
	have := realPrograms(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	_, err := find(ctx, slices.Values([]candidate{{"real", have.dir}}), 0)
	require.ErrorIs(t, err, context.Canceled)
	_, err = Find(ctx, have.dir)
	require.ErrorIs(t, err, context.Canceled)
	_, err = Tool(ctx, "", "pg_dump", have.major)
	require.ErrorIs(t, err, context.Canceled)
}

// A program that was asked for its version when the search was cancelled is not wrong.
func TestASearchThatIsCancelledMeanwhileSaysSo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	begun := filepath.Join(dir, "begun")
	syscall.ForkLock.RLock() // no child has it open for writing, so it can be run
	err := os.WriteFile(filepath.Join(dir, "postgres"), []byte("#!/bin/sh\n: >"+begun+"\nexec sleep 600\n"), 0o755)
	syscall.ForkLock.RUnlock()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := Find(ctx, dir); ended <- err }()
	require.Eventually(t, func() bool { _, err := os.Stat(begun); return err == nil }, time.Minute, 10*time.Millisecond)

	cancel()

	require.ErrorIs(t, <-ended, context.Canceled)
}
