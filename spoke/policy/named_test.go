package policy

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

// What was opened is judged, whatever is at the path of it by then.
func TestWhatWasOpenedIsJudged(t *testing.T) {
	t.Parallel()
	top, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	at := func(name string) string { return filepath.Join(top, name) }
	require.NoError(t, os.MkdirAll(at("area/proj"), 0o700))
	require.NoError(t, os.Mkdir(at("private"), 0o700))
	require.NoError(t, os.Symlink(at("private"), at("area/link")))
	p, err := Parse([]byte("version: 1\nruntimes: [exec]\ncommands: [\"*\"]\ndirectories: [" + at("area") + "]\n"))
	require.NoError(t, err)
	inside := &commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"true"}, Dir: at("area/proj")}
	outside := &commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"true"}, Dir: at("area/link")}
	in, out := p.OpenNamed(inside), p.OpenNamed(outside)
	defer in.Close()
	defer out.Close()
	for _, step := range [][2]string{{"area/proj", "area/tmp"}, {"area/link", "area/proj"}, {"area/tmp", "area/link"}} {
		require.NoError(t, os.Rename(at(step[0]), at(step[1])))
	}

	require.Nil(t, p.JudgeNamed(inside, nil, in))
	r := p.JudgeNamed(outside, nil, out)

	require.NotNil(t, r)
	require.Equal(t, commands.BadPath, r.Code)
	require.NotNil(t, p.Judge(inside, nil), "and anew it is what is there now")
	require.Nil(t, p.Judge(outside, nil))
}

// A link that named an allowed program and leads to another one by now runs nothing.
func TestALinkToAProgramThatIsSwappedRunsNothing(t *testing.T) {
	t.Parallel()
	top, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	tool, link := filepath.Join(top, "bin", "tool"), filepath.Join(top, "tool")
	require.NoError(t, os.Mkdir(filepath.Dir(tool), 0o700))
	require.NoError(t, os.WriteFile(tool, nil, 0o700))
	require.NoError(t, os.Symlink(tool, link))
	p, err := Parse([]byte("version: 1\nruntimes: [exec]\ncommands: [" + tool + " **]\n"))
	require.NoError(t, err)
	s := &commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{link, "x"}}
	require.Nil(t, p.Judge(s, nil))
	require.Equal(t, []string{tool, "x"}, p.Exec(s, nil).Argv)
	require.NoError(t, os.Remove(link))
	require.NoError(t, os.WriteFile(link, nil, 0o700))

	require.Empty(t, p.Exec(s, nil).Argv)
	_, why := p.Exec(s, nil).Startable()
	require.Equal(t, "it is not allowed", why)
}
