package tartree_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/tartree"
)

var bounds = tartree.Bounds{Entries: 1000, Bytes: 1 << 20}

// all is what is below a directory.
func all(t *testing.T, dir string) string {
	t.Helper()
	c := exec.Command("bash", "-c", `export LC_ALL=C; find . -mindepth 1 -printf '%P %y %m %l\n' | sort; find . -type f -print0 | sort -z | xargs -0r sha256sum`)
	c.Dir = dir
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

func sh(t *testing.T, dir, script string) {
	t.Helper()
	c := exec.Command("bash", "-ec", "umask 022; "+script)
	c.Dir = dir
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

const tree = `mkdir -p a/b 'empty dir' z; echo x > a/x; echo run > a/b/run; chmod 755 a/b/run; ln -s ../x a/b/up; ln -s a/x link; ln -s nowhere z/dangling; ln -s ../../z a/b/z; : > none
echo n > $'n\nl'; echo i > $'\xff\xfe'; echo l > ` + "$(printf 'n%.0s' {1..250})" + `; d=` + "$(printf 'deep/%.0s' {1..60})" + `; mkdir -p $d; echo d > ${d}file; head -c 300000 /dev/urandom > big`

func TestADirectoryIsTheSameThere(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), t.TempDir()
	sh(t, from, tree+`; ln -s /etc/passwd out1; ln -s ../.. a/out2; ln -s b/../../../x a/out3; ln -s . self; ln -s self/.. out4`)
	var out bytes.Buffer
	without, err := tartree.Tar(t.Context(), from, &out)
	require.NoError(t, err)
	require.Equal(t, []string{"a/out2", "a/out3", "out1", "out4"}, without)
	require.NoError(t, tartree.Untar(t.Context(), bytes.NewReader(out.Bytes()), to, bounds))
	sh(t, from, "rm out1 a/out2 a/out3 out4")
	require.Equal(t, all(t, from), all(t, to))

	sh(t, to, "find . -exec touch -h -d @5 {} +; chmod 600 a/x; chmod 711 a/b/run; chmod 700 z") // the owner's right to execute is all
	var again bytes.Buffer
	_, err = tartree.Tar(t.Context(), to, &again)
	require.NoError(t, err)
	require.True(t, bytes.Equal(out.Bytes(), again.Bytes()), "neither times nor modes are in it")
	plain := t.TempDir()
	require.NoError(t, os.WriteFile(plain+".tar", out.Bytes(), 0o600))
	sh(t, plain, "tar xf "+plain+".tar")
	require.Equal(t, all(t, from), all(t, plain), "tar reads it")
}

func TestWhatIsNoFileIsNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(dir+"/d", 0o700))
	require.NoError(t, syscall.Mkfifo(dir+"/d/pipe", 0o600))
	_, err := tartree.Tar(t.Context(), dir, io.Discard)
	require.ErrorIs(t, err, tartree.ErrSpecial)
	require.ErrorContains(t, err, `"d/pipe"`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = tartree.Tar(ctx, dir, io.Discard)
	require.ErrorIs(t, err, context.Canceled)
	_, err = tartree.Tar(t.Context(), dir+"/nothing", io.Discard)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// stream is entries as "type name [target]"; f is a file that says "evil".
func stream(t *testing.T, entries ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		f := strings.SplitN(e, " ", 3)
		h := &tar.Header{Format: tar.FormatGNU, Name: f[1], Mode: 0o6777, ModTime: time.Now()}
		switch h.Typeflag = map[string]byte{"f": tar.TypeReg, "d": tar.TypeDir, "l": tar.TypeSymlink, "h": tar.TypeLink, "p": tar.TypeFifo, "c": tar.TypeChar, "b": tar.TypeBlock}[f[0]]; h.Typeflag {
		case tar.TypeReg:
			h.Size = 4
		case tar.TypeSymlink, tar.TypeLink:
			h.Linkname = f[2]
		}
		require.NoError(t, w.WriteHeader(h))
		if h.Size > 0 {
			fmt.Fprint(w, "evil")
		}
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

func TestAHostileStreamStaysInside(t *testing.T) {
	t.Parallel()
	for _, entries := range [][]string{
		{"f ../x"}, {"f /x"}, {"f a/../../x"}, {"f ./x"}, {"d ../x"}, {"d ."}, {"d .."}, {"f .."}, {"f a//x"}, {"d a", "f a//x"}, {"d a", "f a/../x"}, {"f a/x"},
		{"l x /etc"}, {"l x .."}, {"l x ../x"}, {"d a", "l a/x ../.."}, {"l x a/.."}, {"l self .", "l x self/../.."}, {"d a", "l a/up ..", "l a/x up/.."}, {"h x /etc/passwd"}, {"f y", "h x y"}, {"p x"}, {"c x"}, {"b x"},
		{"d a", "l l a", "f l/x"}, {"l l a", "d l"}, {"l l a", "f l"}, {"f x", "f x"}, {"d x", "f x"}, {"f x", "d x", "f x/y"}, {"d x", "d x"}, {"d a", "l a b"},
	} {
		outer := t.TempDir()
		dir := filepath.Join(outer, "in")
		require.NoError(t, os.Mkdir(dir, 0o700))
		err := tartree.Untar(t.Context(), bytes.NewReader(stream(t, entries...)), dir, bounds)
		require.ErrorIs(t, err, tartree.ErrBad, "%q", entries)
		list, err := os.ReadDir(outer)
		require.NoError(t, err)
		require.Len(t, list, 1, "%q", entries)
	}
	dir := t.TempDir()
	require.NoError(t, tartree.Untar(t.Context(), bytes.NewReader(stream(t, "d A", "f a", "f A/a", "l A/l ../a")), dir, bounds))
	info, err := os.Stat(dir + "/a")
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), info.Mode(), "no other bit of a mode is taken")
}

func TestAStreamIsBounded(t *testing.T) {
	t.Parallel()
	text := stream(t, "f a", "f b", "f c")
	for b, lacks := range map[tartree.Bounds]error{{Entries: 2, Bytes: 100}: tartree.ErrTooMany, {Entries: 3, Bytes: 11}: tartree.ErrTooLarge, {}: tartree.ErrTooMany} {
		require.ErrorIs(t, tartree.Untar(t.Context(), bytes.NewReader(text), t.TempDir(), b), lacks)
	}
	require.NoError(t, tartree.Untar(t.Context(), bytes.NewReader(text), t.TempDir(), tartree.Bounds{Entries: 3, Bytes: 12}))
	holes := t.TempDir()
	for _, format := range []string{"--format=gnu -S", "--format=pax -S --sparse-version=0.0", "--format=pax -S --sparse-version=0.1", "--format=pax -S --sparse-version=1.0"} {
		sh(t, holes, "truncate -s 1M f; echo x >>f; tar c "+format+" -f t f")
		text, err := os.ReadFile(holes + "/t")
		require.NoError(t, err)
		require.Less(t, len(text), 100_000, "it has holes")
		require.ErrorIs(t, tartree.Untar(t.Context(), bytes.NewReader(text), t.TempDir(), bounds), tartree.ErrBad, format)
	}
	require.ErrorIs(t, tartree.Untar(t.Context(), bytes.NewReader(stream(t, "f "+strings.Repeat("n", 5000))), t.TempDir(), bounds), tartree.ErrBad)
	require.ErrorIs(t, tartree.Untar(t.Context(), bytes.NewReader(text[:514]), t.TempDir(), bounds), tartree.ErrBad)
	require.ErrorIs(t, tartree.Untar(t.Context(), bytes.NewReader([]byte(strings.Repeat("x", 2000))), t.TempDir(), bounds), tartree.ErrBad)
}

// Whatever a few bits do to a stream: it is taken or refused, and makes nothing elsewhere.
func TestADamagedStreamStaysInside(t *testing.T) {
	t.Parallel()
	from := t.TempDir()
	sh(t, from, `mkdir a; echo x > a/x; ln -s x a/l; ln -s a d; echo y > y`)
	var out bytes.Buffer
	_, err := tartree.Tar(t.Context(), from, &out)
	require.NoError(t, err)
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		outer := t.TempDir()
		require.NoError(t, os.Mkdir(outer+"/in", 0o700))
		text := bytes.Clone(out.Bytes())
		for range 1 + rnd.IntN(3) {
			text[rnd.IntN(len(text))] ^= 1 << rnd.IntN(8)
		}
		_ = tartree.Untar(t.Context(), bytes.NewReader(text), outer+"/in", bounds)
		list, err := os.ReadDir(outer)
		require.NoError(t, err)
		require.Len(t, list, 1)
	}
}
