package hostfile

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// tree makes base/way/dir/file, safe, and a link base/link to way.
func tree(t *testing.T) (base, file string) {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	dir := filepath.Join(base, "way", "dir")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	file = filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, []byte("mine"), 0o600))
	require.NoError(t, os.Symlink("way", filepath.Join(base, "link")))
	return base, file
}

func read(t *testing.T, path string, rule Rule) (string, error) {
	t.Helper()
	f, err := Open(path, rule)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	require.NoError(t, err)
	return string(text), nil
}

func TestAFileIsAsSafeAsTheWayToIt(t *testing.T) {
	t.Parallel()
	base, file := tree(t)
	at := func(names ...string) string { return filepath.Join(append([]string{base}, names...)...) }
	require.NoError(t, os.Symlink(at("way"), at("whole")))
	require.NoError(t, os.Symlink("../link/dir", at("way", "round")))
	require.NoError(t, os.Symlink("file", at("way", "dir", "name")))
	require.NoError(t, os.Symlink("loop", at("loop")))
	require.NoError(t, os.Mkdir(at("sticky"), 0o700))
	require.NoError(t, os.Chmod(at("sticky"), 0o707|fs.ModeSticky))
	require.NoError(t, os.WriteFile(at("sticky", "file"), []byte("mine"), 0o600))

	for _, path := range []string{file, at("link", "dir", "file"), at("whole", "dir", "file"), at("way", "round", "file"), at("way", "dir", "name"), at("sticky", "file")} {
		text, err := read(t, path, Rule{Secret: true})
		require.NoError(t, err, path)
		require.Equal(t, "mine", text)
	}

	_, err := Open(at("way", "dir", "name"), Rule{NoLink: true})
	require.EqualError(t, err, at("way", "dir", "name")+" is a symbolic link; put the file itself there")
	_, err = Open(at("loop", "file"), Rule{})
	require.ErrorIs(t, err, unix.ELOOP)
	for _, path := range []string{at("way", "dir", "other"), at("way", "other", "file")} {
		_, err = Open(path, Rule{})
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.NoError(t, Way(path))
	}
	_, err = Open(at("way", "dir"), Rule{})
	require.ErrorContains(t, err, "is not a regular file")
	require.NoError(t, Dir(at("link", "dir")))
	require.ErrorContains(t, Dir(at("sticky")), "can be written by everybody; run: chmod o-w", "others can add to it")
}

// Each thing that is wrong is named with the command that mends it: after that command
// the file is opened.
func TestWhatOthersCouldHaveWrittenIsNotOpened(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		spoil     func(t *testing.T, base string)
		path, why string
		root      bool // only root can give things away
	}{
		"a directory for everybody":      {chmod("way", 0o707), "way", "can be written by everybody; run: chmod o-w ", false},
		"the directory that it is in":    {chmod("way/dir", 0o703), "way/dir", "can be written by everybody; run: chmod o-w ", false},
		"a file for everybody":           {chmod("way/dir/file", 0o602), "way/dir/file", "; run: chmod ", false},
		"a file for its group":           {chmod("way/dir/file", 0o620), "way/dir/file", "; run: chmod ", false},
		"a directory of somebody else":   {chown("way"), "way", "belongs to user 65534, who can replace what is in it, and must belong to the user that runs this; run: chown ", true},
		"one of somebody, for everybody": {both(chown("way"), chmod("way", 0o777)), "way", "belongs to user 65534", true},
		"a sticky one of somebody else":  {both(chown("way"), chmod("way", 0o777|fs.ModeSticky)), "way", "belongs to user 65534", true},
		"a file of somebody else":        {chown("way/dir/file"), "way/dir/file", "belongs to user 65534 and must belong to the user that runs this; run: chown ", true},
		"a link of somebody else":        {chown("link"), "link", "belongs to user 65534, who can lead it elsewhere, and must belong to the user that runs this; run: chown -h ", true},
	}
	for name, tt := range tests {
		for as, rule := range map[string]Rule{"": {}, " as a secret": {Secret: true}} {
			t.Run(name+as, func(t *testing.T) {
				t.Parallel()
				if tt.root && os.Geteuid() != 0 {
					return
				}
				base, _ := tree(t)
				tt.spoil(t, base)

				_, err := Open(filepath.Join(base, "link", "dir", "file"), rule)

				var e *UnsafeError
				require.ErrorAs(t, err, &e)
				require.Equal(t, filepath.Join(base, tt.path), e.Path)
				require.Contains(t, err.Error(), tt.why)
				require.True(t, strings.HasSuffix(err.Error(), filepath.Join(base, tt.path)), "the command is about it")
			})
		}
	}
}

func chmod(name string, mode fs.FileMode) func(*testing.T, string) {
	return func(t *testing.T, base string) { require.NoError(t, os.Chmod(filepath.Join(base, name), mode)) }
}

func chown(name string) func(*testing.T, string) {
	return func(t *testing.T, base string) {
		if os.Geteuid() == 0 {
			require.NoError(t, os.Lchown(filepath.Join(base, name), 65534, -1))
		}
	}
}

func both(one, two func(*testing.T, string)) func(*testing.T, string) {
	return func(t *testing.T, base string) { one(t, base); two(t, base) }
}

func TestASecretIsNobodyElses(t *testing.T) {
	t.Parallel()
	_, file := tree(t)
	for mode, fine := range map[fs.FileMode]bool{0o600: true, 0o400: true, 0o640: false, 0o604: false, 0o610: false, 0o601: false, 0o700: false, 0o644: false} {
		require.NoError(t, os.Chmod(file, mode))

		_, err := read(t, file, Rule{Secret: true})

		if fine {
			require.NoError(t, err, mode)
		} else {
			require.EqualError(t, err, file+" has mode 0"+strconv.FormatUint(uint64(mode), 8)+": others can use it; run: chmod 600 "+file)
		}
	}
	require.NoError(t, os.Chmod(file, 0o644))
	_, err := read(t, file, Rule{})
	require.NoError(t, err, "what is no secret may be read by all")
	require.NoError(t, os.Remove(file))
	require.NoError(t, syscall.Mkfifo(file, 0o600))
	_, err = Open(file, Rule{})
	require.ErrorContains(t, err, "is not a regular file", "and a pipe does not hold us")
}

// What was looked at is what is read: a name that leads elsewhere a moment later
// changes nothing.
func TestWhatIsSwappedMeanwhileIsNotRead(t *testing.T) {
	t.Parallel()
	base, file := tree(t)
	evil := filepath.Join(base, "evil")
	require.NoError(t, os.MkdirAll(filepath.Join(evil, "dir"), 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(evil, "dir", "file"), []byte("evil"), 0o600))
	w, name, err := walk(file, true)
	require.NoError(t, err)
	defer w.close()
	require.NoError(t, os.Rename(filepath.Join(base, "way"), filepath.Join(base, "gone")))
	require.NoError(t, os.Symlink(evil, filepath.Join(base, "way")))

	f, err := w.file(name, Rule{})

	require.NoError(t, err)
	defer f.Close()
	text, err := io.ReadAll(f)
	require.NoError(t, err)
	require.Equal(t, "mine", string(text))
	require.NoError(t, os.Remove(filepath.Join(base, "gone", "dir", "file")))
	require.NoError(t, os.Symlink(filepath.Join(evil, "dir", "file"), filepath.Join(base, "gone", "dir", "file")))
	_, err = w.file(name, Rule{})
	require.ErrorContains(t, err, "is a symbolic link", "one that was put there after the way was walked")
}

// Who may own and write what does not depend on who runs this test.
func TestWhoMayOwnAndWrite(t *testing.T) {
	t.Parallel()
	alice := user{uid: 1000, gid: 1000, group: func(gid uint32) bool { return gid == 1000 }}
	const dir, file = unix.S_IFDIR, unix.S_IFREG
	tests := map[string]struct {
		st   unix.Stat_t
		rule Rule
		safe bool
	}{
		"root's directory":                    {unix.Stat_t{Mode: dir | 0o755}, Rule{}, true},
		"her own":                             {unix.Stat_t{Mode: dir | 0o700, Uid: 1000}, Rule{}, true},
		"her own, for her own group":          {unix.Stat_t{Mode: dir | 0o775, Uid: 1000, Gid: 1000}, Rule{}, true},
		"root's, for her own group":           {unix.Stat_t{Mode: dir | 0o775, Gid: 1000}, Rule{}, true},
		"her own, for another group":          {unix.Stat_t{Mode: dir | 0o775, Uid: 1000, Gid: 100}, Rule{}, false},
		"/tmp":                                {unix.Stat_t{Mode: dir | 0o1777}, Rule{}, true},
		"/tmp without its sticky bit":         {unix.Stat_t{Mode: dir | 0o777}, Rule{}, false},
		"that of another user":                {unix.Stat_t{Mode: dir | 0o755, Uid: 1001}, Rule{}, false},
		"root's file":                         {unix.Stat_t{Mode: file | 0o644}, Rule{}, true},
		"root's file as a secret":             {unix.Stat_t{Mode: file | 0o600}, Rule{Secret: true}, false},
		"a file that her group may write":     {unix.Stat_t{Mode: file | 0o664, Uid: 1000, Gid: 1000}, Rule{}, false},
		"a file of another user":              {unix.Stat_t{Mode: file | 0o644, Uid: 1001}, Rule{}, false},
		"her own secret":                      {unix.Stat_t{Mode: file | 0o600, Uid: 1000}, Rule{Secret: true}, true},
		"a secret that others can only write": {unix.Stat_t{Mode: file | 0o602, Uid: 1000}, Rule{Secret: true}, false},
	}
	for name, tt := range tests {
		var e *UnsafeError
		if tt.st.Mode&unix.S_IFMT == dir {
			e = alice.directory("/x", &tt.st)
		} else {
			e = alice.file("/x", &tt.st, tt.rule)
		}

		require.Equal(t, tt.safe, e == nil, "%s: %v", name, e)
	}
}

func TestAGroupOfOnesOwn(t *testing.T) {
	t.Parallel()
	const groups = "root:x:0:\nusers:x:100:\nalice:x:1000:\nbob:x:1001:alice\ncarol:x:1002:carol\n"
	for name, tt := range map[string]struct {
		gid  uint32
		user string
		own  bool
	}{
		"her own":                  {1000, "alice", true},
		"root's":                   {0, "root", true},
		"one that names its user":  {1002, "carol", true},
		"that of another":          {1000, "bob", false},
		"his own with her in it":   {1001, "bob", false},
		"one that many begin in":   {100, "alice", false},
		"one that nobody knows":    {2000, "alice", false},
		"one of a user of no name": {1000, "", false},
	} {
		require.Equal(t, tt.own, private(strings.NewReader(groups), tt.gid, tt.user), name)
	}
}

func TestACommandCanBePasted(t *testing.T) {
	t.Parallel()
	require.Equal(t, "run: chmod 600 /srv/a-b/c", run("chmod 600", "/srv/a-b/c"))
	require.Equal(t, `run: chmod 600 '/srv/it'\''s; two/c'`, run("chmod 600", "/srv/it's; two/c"))
}
