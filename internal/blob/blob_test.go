package blob_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/blob"
)

const most = 1 << 30

func open(t *testing.T, dir string) *blob.Store {
	t.Helper()
	s, err := blob.Open(dir)
	require.NoError(t, err)
	return s
}

func read(t *testing.T, s *blob.Store, d blob.Digest) ([]byte, error) {
	t.Helper()
	r, err := s.Open(d)
	require.NoError(t, err)
	defer r.Close()
	return io.ReadAll(r)
}

func some(seed uint64, size int) []byte {
	b := make([]byte, size)
	rand.NewChaCha8([32]byte{byte(seed)}).Read(b)
	return b
}

// files lists what is below dir, by name.
func files(t *testing.T, dir string) (list []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && e.Name() != blob.MarkFile {
			list = append(list, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	}))
	return list
}

func TestABlobIsKeptByItsDigest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	for _, size := range []int{0, 1, 70_000} {
		text := some(1, size)
		d, n, err := s.Write(bytes.NewReader(text), int64(size))
		require.NoError(t, err)
		require.Equal(t, blob.Of(text), d)
		require.EqualValues(t, size, n)

		again, _, err := open(t, dir).Write(bytes.NewReader(text), most)
		require.NoError(t, err, "a second write is no error")
		require.Equal(t, d, again)
		got, err := read(t, s, d)
		require.NoError(t, err)
		require.Equal(t, text, got)
		n, err = s.Size(d)
		require.NoError(t, err)
		require.EqualValues(t, size, n)
		require.NoError(t, s.Remove(d))
		require.NoError(t, s.Remove(d), "what is not here is no error")
		_, err = s.Open(d)
		require.ErrorIs(t, err, fs.ErrNotExist)
		_, err = s.Size(d)
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	require.Empty(t, files(t, dir))
}

func TestWhatIsNotKeptLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	_, _, err := s.Write(bytes.NewReader(some(1, 100)), 99)
	require.ErrorIs(t, err, blob.ErrTooLarge)
	broken := errors.New("the line is cut")
	_, _, err = s.Write(io.MultiReader(bytes.NewReader(some(1, 100)), iotest.ErrReader(broken)), most)
	require.ErrorIs(t, err, broken)
	require.Empty(t, files(t, dir))

	require.NoError(t, os.WriteFile(filepath.Join(dir, "drafts", "1"), some(1, 10), 0o600)) // its writer was killed
	open(t, dir)
	require.Empty(t, files(t, dir))
}

// A bad disk, or a hand: what has changed is not handed out as if it had not, and a new copy takes its place.
func TestADamagedBlobIsFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	text := some(1, 70_000)
	d, _, err := s.Write(bytes.NewReader(text), most)
	require.NoError(t, err)
	path := filepath.Join(dir, files(t, dir)[0])
	for name, changed := range map[string][]byte{"a bit": append([]byte{text[0] ^ 1}, text[1:]...), "its end": text[:69_999], "more": append(text[:len(text):len(text)], 0)} {
		require.NoError(t, os.WriteFile(path, changed, 0o600))
		_, err := read(t, s, d)
		require.ErrorIs(t, err, blob.ErrDamaged, name)
		require.ErrorContains(t, err, d.String())
	}
	_, _, err = s.Write(bytes.NewReader(text), most)
	require.NoError(t, err)
	got, err := read(t, s, d)
	require.NoError(t, err)
	require.Equal(t, text, got)
}

// A directory that is made anew, or that a backup was put into, is known as another one.
func TestACopyHasAnotherMark(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	first := s.Mark()
	require.NotEmpty(t, first)
	require.Equal(t, first, open(t, dir).Mark())
	require.NoError(t, s.Renew())
	second := s.Mark()
	require.NotEqual(t, first, second)
	require.Equal(t, second, open(t, dir).Mark())
	require.NoError(t, os.Remove(filepath.Join(dir, blob.MarkFile)))
	require.NotEqual(t, second, open(t, dir).Mark())
}

func TestSeveralWritersOfTheSame(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	text := some(1, 300_000)
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			d, _, err := s.Write(bytes.NewReader(text), most)
			if err != nil || d != blob.Of(text) {
				t.Error(d, err)
			}
			if got, err := read(t, s, d); err != nil || !bytes.Equal(got, text) {
				t.Error("not all of it has the name", len(got), err)
			}
		})
	}
	work.Wait()
	require.Len(t, files(t, dir), 1)
}

func TestATransferGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := some(1, 250_000)
	d := blob.Of(text)
	for at := 0; at < len(text); at += 60_000 { // each time another process
		p, err := open(t, dir).Part("attic", d, int64(len(text)))
		require.NoError(t, err)
		require.EqualValues(t, at, p.Offset())
		require.ErrorIs(t, p.Finish(), io.ErrUnexpectedEOF)
		p, err = open(t, dir).Part("attic", d, int64(len(text)))
		require.NoError(t, err)
		require.NoError(t, p.Append(text[at:min(at+60_000, len(text))]))
		require.NoError(t, p.Close())
	}
	s := open(t, dir)
	_, err := s.Size(d)
	require.ErrorIs(t, err, fs.ErrNotExist, "it has no name before it was checked")
	p, err := s.Part("attic", d, int64(len(text)))
	require.NoError(t, err)
	require.ErrorIs(t, p.Append([]byte{0}), blob.ErrTooLarge)
	require.NoError(t, p.Finish())
	got, err := read(t, s, d)
	require.NoError(t, err)
	require.Equal(t, text, got)
	require.Len(t, files(t, dir), 1)
}

func TestATransferOfOtherBytesBeginsAgain(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	text := some(1, 1000)
	d := blob.Of(text)
	p, err := s.Part("attic", d, 1000)
	require.NoError(t, err)
	require.NoError(t, p.Append(some(2, 1000)))
	require.ErrorIs(t, p.Finish(), blob.ErrDamaged)
	_, err = s.Open(d)
	require.ErrorIs(t, err, fs.ErrNotExist)

	p, err = s.Part("attic", d, 1000)
	require.NoError(t, err)
	require.Zero(t, p.Offset())
	require.NoError(t, p.Append(text[:900]))
	require.NoError(t, p.Close())
	p, err = s.Part("attic", d, 800) // an order that lied of the size
	require.NoError(t, err)
	require.Zero(t, p.Offset())
	require.NoError(t, p.Close())
	require.NoError(t, s.Remove(d))
}

func TestDigestsAreReadStrictly(t *testing.T) {
	t.Parallel()
	d := blob.Of([]byte("x"))
	got, err := blob.Parse(d.String())
	require.NoError(t, err)
	require.Equal(t, d, got)
	digits := strings.TrimPrefix(d.String(), "sha256-")
	for _, bad := range []string{"", "sha256-", digits, "sha256:" + digits, "sha256-" + strings.ToUpper(digits), d.String() + "0", d.String()[:70],
		"sha256-" + strings.Repeat("g", 64), "sha256-" + strings.Repeat("/", 64), "sha256-../" + digits[3:], "sha512-" + digits} {
		_, err := blob.Parse(bad)
		require.ErrorContains(t, err, "is no digest", bad)
	}
}

// What was written again a moment ago is not what was to be removed for its age.
func TestOldBlobsAreRemoved(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	d, _, err := s.Write(strings.NewReader("x"), most)
	require.NoError(t, err)
	began := time.Now().Add(-time.Minute)
	old := func(before time.Time) (list []blob.Digest) {
		list, err := s.Old(d[0], before)
		require.NoError(t, err)
		return list
	}
	require.Empty(t, old(began))
	require.NoError(t, s.RemoveOld(d, began))
	require.Equal(t, []blob.Digest{d}, old(began.Add(time.Hour)))
	require.NoError(t, s.RemoveOld(d, began.Add(time.Hour)))
	require.NoError(t, s.RemoveOld(d, began.Add(time.Hour)), "what is not here is no error")
	_, err = s.Size(d)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Empty(t, old(began.Add(time.Hour)))
}

// Rubbish that one sender puts under the digest of another's blob harms nobody but itself.
func TestSendersDoNotSpoilEachOthersParts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	text := some(1, 1000)
	d := blob.Of(text)
	good, err := s.Part("attic", d, 1000)
	require.NoError(t, err)
	bad, err := s.Part("cellar", d, 1000)
	require.NoError(t, err)
	require.NoError(t, good.Append(text[:500]))
	require.NoError(t, bad.Append(some(2, 1000)))
	list, err := s.Parts()
	require.NoError(t, err)
	n, err := s.Came("attic", d)
	require.NoError(t, err)
	require.EqualValues(t, 500, n)
	n, err = s.Came("nobody", d)
	require.NoError(t, err)
	require.Zero(t, n)
	require.ElementsMatch(t, []blob.PartOf{{From: "attic", Digest: d}, {From: "cellar", Digest: d}}, list)
	require.ErrorIs(t, bad.Finish(), blob.ErrDamaged)
	require.NoError(t, good.Append(text[500:]))
	require.NoError(t, good.Finish())
	got, err := read(t, s, d)
	require.NoError(t, err)
	require.Equal(t, text, got)

	left, err := s.Part("cellar", d, 1000)
	require.NoError(t, err)
	require.Zero(t, left.Offset())
	require.NoError(t, left.Close())
	later := time.Now().Add(time.Hour)
	require.NoError(t, s.RemovePart("cellar", d, later.Add(-2*time.Hour)))
	list, err = s.Parts()
	require.NoError(t, err)
	require.Len(t, list, 1, "it is under way")
	require.NoError(t, s.RemovePart("cellar", d, later))
	require.NoError(t, s.RemovePart("cellar", d, later), "what is not here is no error")
	left, err = s.Part("cellar", d, 1000)
	require.NoError(t, err)
	require.NoError(t, left.Close())
	require.NoError(t, s.Remove(d))
	require.Empty(t, files(t, dir))
	for _, from := range []string{"", "..", "a/b", "A", "a.b"} {
		_, err := s.Part(from, d, 1000)
		require.ErrorContains(t, err, "is no sender", from)
	}
}
