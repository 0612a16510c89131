package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whoever loses the database of a hub must not find an empty one in its place and
// believe that nothing is lost.
func TestALostDatabaseIsNotMadeAnewSilently(t *testing.T) {
	t.Parallel()
	m := startHub(t)
	h := hand{t: t, dir: m.Hub.Dir}
	require.NoError(t, m.Hub.Stop(t.Context()))
	require.NoError(t, os.RemoveAll(filepath.Join(h.dir, "pg")))

	for range 2 { // trying again does not help
		h.refused(exitConflict, "is new, and the data directory "+h.dir+" belongs to another one", "hub", "run", "--link", "127.0.0.1:0")
	}

	require.NoError(t, os.Remove(filepath.Join(h.dir, "incarnation")))
	require.NoError(t, m.Hub.Start(t.Context()), "as the message says")
}
