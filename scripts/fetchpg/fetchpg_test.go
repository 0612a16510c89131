package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const links = `[{"source":"native/lib/libpq.so.5.18","target":"native/lib/libpq.so.5"}]`

func packed(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, content := range files {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(content))}))
		_, err := w.Write([]byte(content))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, z.Close())
	return b.Bytes()
}

// registry serves body as @scope/thing, below a path as mirrors do.
func registry(t *testing.T, body []byte) *url.URL {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/npm/@scope/thing/-/thing-1.tgz" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(body)
	}))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL + "/npm/")
	require.NoError(t, err)
	return u
}

func thing(body []byte) pkg {
	sum := sha512.Sum512(body)
	return pkg{name: "@scope/thing", file: "thing-1.tgz", sha512: base64.StdEncoding.EncodeToString(sum[:])}
}

func TestInstallReplacesWhatIsThere(t *testing.T) {
	t.Parallel()
	body := packed(t, map[string]string{"package/native/bin/postgres": "program", "package/native/lib/libpq.so.5.18": "library",
		"package/native/pg-symlinks.json": links})
	dir := filepath.Join(t.TempDir(), "scope", "thing")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "old"), 0o755))

	err := thing(body).install(t.Context(), registry(t, body), dir)

	require.NoError(t, err)
	info, err := os.Stat(filepath.Join(dir, "native/bin/postgres"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), info.Mode().Perm())
	through, err := os.ReadFile(filepath.Join(dir, "native/lib/libpq.so.5"))
	require.NoError(t, err)
	require.Equal(t, "library", string(through))
	require.NoDirExists(t, filepath.Join(dir, "old"))
	entries, err := os.ReadDir(filepath.Dir(dir))
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing else is left")
}

func TestInstallRefuses(t *testing.T) {
	t.Parallel()
	good := packed(t, map[string]string{"package/native/pg-symlinks.json": links, "package/native/lib/libpq.so.5.18": "library"})
	outside := packed(t, map[string]string{"package/../../../outside": "x", "package/native/pg-symlinks.json": "[]"})
	for name, tt := range map[string]struct {
		served []byte
		want   pkg
		err    string
	}{
		"another content than was pinned": {append([]byte{}, outside...), thing(good), "is not the package that is expected"},
		"half of a package":               {good[:len(good)/2], thing(good), "is not the package that is expected"},
		"a package that is not there":     {good, pkg{name: "@scope/thing", file: "thing-2.tgz"}, "the registry answers 404"},
		"a name that leads outside":       {outside, thing(outside), "path escapes from parent"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			above := t.TempDir()
			dir := filepath.Join(above, "scope", "thing")
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "old"), 0o755))

			err := tt.want.install(t.Context(), registry(t, tt.served), dir)

			require.ErrorContains(t, err, tt.err)
			require.DirExists(t, filepath.Join(dir, "old"), "what was there stays")
			require.NoFileExists(t, filepath.Join(above, "outside"))
			entries, err := os.ReadDir(filepath.Dir(dir))
			require.NoError(t, err)
			require.Len(t, entries, 1, "nothing else is left")
		})
	}
}

func TestRegistryIsTheOneNpmWouldUse(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(home, ".npmrc"),
		[]byte("//a.example/:_authToken=secret\nregistry = \"https://${WHERE}.example/npm/\"\n"), 0o600))
	global := filepath.Join(t.TempDir(), "npmrc")
	require.NoError(t, os.WriteFile(global, []byte("registry=https://global.example\n"), 0o600))
	for name, tt := range map[string]struct {
		env  []string
		npm  string
		want string
	}{
		"the environment first, in any case": {[]string{"npm_config_Registry=https://env.example", "HOME=" + home}, "https://npm.example", "https://env.example"},
		"then npm where there is one":        {[]string{"HOME=" + home}, "https://npm.example", "https://npm.example"},
		"then the user's file":               {[]string{"HOME=" + home, "WHERE=mine"}, "", "https://mine.example/npm/"},
		"another file if one is named":       {[]string{"HOME=/nowhere", "NPM_CONFIG_USERCONFIG=" + home + "/.npmrc", "WHERE=m"}, "", "https://m.example/npm/"},
		"then the machine's":                 {[]string{"HOME=/nowhere", "NPM_CONFIG_GLOBALCONFIG=" + global}, "", "https://global.example"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got, err := findRegistry(t.Context(), tt.env, func(context.Context) string { return tt.npm })

			require.NoError(t, err)
			require.Equal(t, tt.want, got.String())
		})
	}
}

func TestNoRegistrySaysWhatToSet(t *testing.T) {
	t.Parallel()
	none := func(context.Context) string { return "" }
	_, err := findRegistry(t.Context(), []string{"HOME=/nowhere", "NPM_CONFIG_GLOBALCONFIG=/nowhere/npmrc"}, none)
	require.ErrorIs(t, err, errNoRegistry)

	_, err = findRegistry(t.Context(), []string{"NPM_CONFIG_REGISTRY=ftp://user:secret@a.example"}, none)
	require.ErrorContains(t, err, "correct it where it is set")
	require.NotContains(t, err.Error(), "secret")
}
