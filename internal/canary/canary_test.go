package canary

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func zipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	_, err := w.Write(b)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return buf.Bytes()
}

// A scanner that finds nothing proves nothing: it finds what was planted, however it looks.
func TestPlantedCanariesAreFound(t *testing.T) {
	c, other := New(), New()
	require.Len(t, c.Value, 32)
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	quoted, err := json.Marshal(map[string][]byte{"body": []byte("{" + b64("TOKEN="+c.Value+"\n") + "}")})
	require.NoError(t, err)
	noise := make([]byte, 200<<10)
	rand.Read(noise)
	half := func(b []byte) []byte { return b[:len(b)/2] }
	for name, data := range map[string]string{
		"as it is":                                 "x" + c.Value + "x",
		"at the end":                               "\x00" + c.Value,
		"in base64 from its beginning":             b64(c.Value + "y"),
		"in base64 one byte later":                 b64("a" + c.Value),
		"in base64 two bytes later":                b64("ab" + c.Value + "cd"),
		"in base64 twice":                          b64("x" + b64("ab"+c.Value+"yz")),
		"in base64 for URLs":                       base64.RawURLEncoding.EncodeToString([]byte("?" + c.Value)),
		"in hex":                                   "\\x" + hex.EncodeToString([]byte(c.Value)),
		"in hex of base64, as a database shows it": "\\x" + hex.EncodeToString([]byte(`{"body":"`+b64(`["`+c.Value+`"]`)+`"}`)),
		"in JSON of base64":                        string(quoted),
		"compressed":                               "head" + string(zipped(t, []byte("abc"+c.Value))) + "tail",
		"compressed behind a header that is none":  "\x1f\x8b\x08nothing" + string(zipped(t, []byte(b64(c.Value)))),
		"compressed and cut":                       string(half(zipped(t, slices.Concat([]byte(c.Value), noise)))),
	} {
		require.True(t, c.In([]byte(data)), name)
		require.False(t, other.In([]byte(data)), name)
	}
}

func TestFilesAndProcessesAreLookedAt(t *testing.T) {
	c := New()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a", "own"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a", "content"), []byte("x"+c.Value), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a", c.Value), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a", "own", "file"), []byte(c.Value), 0o600))
	require.NoError(t, os.Symlink(c.Value, filepath.Join(dir, "link")))

	hits, err := Files(dir, func(path string) bool { return filepath.Base(path) == "own" }, New(), c)

	require.NoError(t, err)
	require.ElementsMatch(t, []string{filepath.Join(dir, "a", "content"), filepath.Join(dir, "a", c.Value)}, hits)
	for name, start := range map[string]*exec.Cmd{
		"cmdline": exec.Command("sh", "-c", "read x", c.Value),
		"environ": {Path: "/bin/sh", Args: []string{"sh", "-c", "read x"}, Env: []string{"X=" + c.Value}},
	} {
		in, err := start.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, start.Start())
		pid := strconv.Itoa(start.Process.Pid)
		hits, err := Processes(nil, c)
		without, failed := Processes(func(p string) bool { return p == pid }, c)
		require.NoError(t, in.Close())
		_ = start.Wait()
		require.NoError(t, err)
		require.NoError(t, failed)
		require.Equal(t, []string{"/proc/" + pid + "/" + name}, hits)
		require.Empty(t, without)
	}
}
