package policy

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/place"
	"github.com/spawnmesh/spawnmesh/spoke/runtime"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
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

// What keeps an order waiting is a fault at a path that is allowed as it is named, with no link in it: where a link leads, a hub that
// has put it there learns from no fault. That there is room for nothing is said of every path.
func TestAFaultBehindALinkIsNotTold(t *testing.T) {
	t.Parallel()
	top, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	at := func(name string) string { return filepath.Join(top, name) }
	require.NoError(t, os.MkdirAll(at("area/proj"), 0o700))
	require.NoError(t, os.Symlink("/elsewhere", at("area/link")))
	p, err := Parse([]byte("version: 1\nruntimes: [exec]\ncommands: [\"*\"]\ndirectories: [" + at("area") + "]\n"))
	require.NoError(t, err)
	fails := func(reason supervisor.Reason) func(string) (*place.Place, error) {
		return func(dir string) (*place.Place, error) { return nil, &supervisor.StartError{Reason: reason, Path: dir} }
	}
	for name, tt := range map[string]struct {
		reason supervisor.Reason
		want   supervisor.Reason // "" = it is opened all the same
	}{
		"area/proj": {supervisor.HostFault, ""},
		"area/link": {supervisor.HostFault, supervisor.BadDirectory},
		"area/none": {supervisor.HostFault, supervisor.BadDirectory},
		"area":      {supervisor.NoResources, supervisor.NoResources},
	} {
		dir, behind, err := p.openDir(at(name), fails(tt.reason))

		dir.Close()
		start, _ := errors.AsType[*supervisor.StartError](err)
		require.Equal(t, tt.want == "", err == nil, name)
		require.Equal(t, tt.want == supervisor.BadDirectory, behind != nil, "%s: %v", name, behind)
		if err != nil {
			require.Equal(t, tt.want, start.Reason, name)
		}
	}
	for _, tt := range []struct {
		reason        supervisor.Reason
		allowed, want bool
	}{{supervisor.HostFault, true, true}, {supervisor.HostFault, false, false}, {supervisor.NoResources, false, true}, {supervisor.BadDirectory, true, false}} {
		n := &Named{}
		n.note(&supervisor.StartError{Reason: tt.reason}, tt.allowed)
		require.Equal(t, tt.want, n.Fault != nil, "%+v", tt)
	}
}

// A program that cannot be looked for, by a fault of this host, is not judged. Other tests need files: none of them runs beside this one.
func TestAFaultAtAProgramIsNoted(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	tool := filepath.Join(top, "tool")
	require.NoError(t, os.WriteFile(tool, nil, 0o700))
	p, err := Parse([]byte("version: 1\nruntimes: [exec]\ncommands: [" + tool + "]\n"))
	require.NoError(t, err)
	next, err := os.Open(top)
	require.NoError(t, err)
	room := unix.Rlimit{Cur: uint64(next.Fd()) + 1} // it is opened, and not found at its path
	require.NoError(t, next.Close())
	var was unix.Rlimit
	require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &was))
	room.Max = was.Max
	require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, &room, nil))

	n := p.OpenNamed(&commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{tool}})

	require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, &was, nil))
	fault, everywhere := runtime.OfHost(n.Fault)
	require.True(t, fault, "%v", n.Fault)
	require.False(t, everywhere)
}

// The host is told where the links of a directory lead that is refused, and that a file is none. The hub is not.
func TestTheHostIsToldWhereADirectoryLeads(t *testing.T) {
	t.Parallel()
	top, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	at := func(name string) string { return filepath.Join(top, name) }
	require.NoError(t, os.MkdirAll(at("area/proj"), 0o700))
	require.NoError(t, os.Mkdir(at("private"), 0o700))
	require.NoError(t, os.Symlink(at("private"), at("area/out")))
	require.NoError(t, os.Symlink(at("area/proj"), at("area/in")))
	require.NoError(t, os.WriteFile(at("area/file"), nil, 0o600))
	p, err := Parse([]byte("version: 1\nruntimes: [exec]\ncommands: [\"*\"]\ndirectories: [" + at("area") + "]\n"))
	require.NoError(t, err)
	for name, want := range map[string]string{
		"area/out": at("area/out") + " leads to " + at("private") + ", which is not allowed", "area/file": at("area/file") + " is no directory",
		"area/none": "there is no directory " + at("area/none"), "area/in": "", "area/proj": "", "private": "",
	} {
		s := &commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"true"}, Dir: at(name)}
		require.Equal(t, want, p.ExplainDir(s), name)
		r := p.Foresee(s, nil)
		require.Equal(t, want != "" || name == "private", r != nil, name)
		if r != nil { // one sentence for what there is and what there is not
			require.Equal(t, "directory "+at(name)+" is not allowed on this spoke, or there is no such directory; its host can make it, and allow it under directories in policy.yaml; without one the agent gets a fresh directory", r.Why+"; "+r.Hint)
		}
	}
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

// A symbolic link that an agent can have made leads no path that the policy lists out of what agents may write: neither
// what they read, nor what they write, nor the check that keeps the data directory closed. A link of the host's does.
func TestALinkOfAnAgentLeadsNoPathOfThePolicyElsewhere(t *testing.T) {
	t.Parallel()
	top, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	at := func(name string) string { return filepath.Join(top, name) }
	for _, dir := range []string{"disk/area/inside", "private", "tools", "state"} {
		require.NoError(t, os.MkdirAll(at(dir), 0o700))
	}
	for link, to := range map[string]string{"area": "disk/area", "bin": at("tools"), // of the host
		"area/out": at("private"), "area/round": "../../private", "area/up": at("state"), "area/in": "inside"} { // of an agent
		if link == "area" || link == "bin" {
			require.NoError(t, os.Symlink(to, at(link)))
			continue
		}
		require.NoError(t, os.Symlink(to, at("disk/"+link)))
	}
	text := "version: 1\nruntimes: [exec]\ncommands: [\"*\"]\nwrite_paths: [" + at("area") + ", " + at("area/out") + "]\nread_paths: [" + at("area/round") + ", " + at("area/in") + ", " + at("disk/area/out") + "]\npath: " + at("area/up") + ":" + at("bin") + "\n"
	require.NoError(t, os.WriteFile(File(at("state")), []byte(text), 0o600))
	live, err := Open(at("state"))
	require.NoError(t, err)
	live.Isolates(host{false, []string{commands.IsolationLandlock}})
	p := live.Now()

	got, err := p.Paths(&commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"true"}}, commands.IsolationLandlock, &Named{})

	require.NoError(t, err)
	require.Equal(t, []string{at("disk/area")}, got.Write)
	require.Equal(t, []string{at("disk/area/inside"), at("tools")}, got.Read)
	require.Equal(t, map[string]string{at("disk/area"): at("area"), at("disk/area/inside"): at("area/in"), at("tools"): at("bin")}, got.Names)
	require.Equal(t, []string{at("area/round"), at("disk/area/out"), at("area/out"), at("area/up")}, p.LeftOut())
	level, err := p.Level()
	require.NoError(t, err, "an agent closes nothing to the others, either")
	require.Equal(t, commands.IsolationLandlock, level)
}

// Which entry allows an order is asked once: a disk that fails later has no say in what runs, and none in whose limits it meets. No other
// test of this package runs beside this one.
func TestTheEntryOfAnOrderIsFoundOnce(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	tool := filepath.Join(top, "tool")
	require.NoError(t, os.WriteFile(tool, nil, 0o700))
	p, err := Parse([]byte("version: 1\nruntimes: [exec]\npath: " + top + "\ncommands:\n  - {run: [" + tool + ", good], account: one, limit_patterns: [quota]}\n  - {run: [" + tool + ", last], account: two, limit_patterns: [quota]}\n"))
	require.NoError(t, err)
	t.Cleanup(func() { evalSymlinks = filepath.EvalSymlinks })
	s := &commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"tool", "last"}}
	n := p.OpenNamed(s)
	defer n.Close()
	evalSymlinks = func(path string) (string, error) { return "", &os.PathError{Op: "lstat", Path: path, Err: unix.EIO} }

	r := p.JudgeNamed(s, nil, n)
	late := p.OpenNamed(s)
	defer late.Close()
	met, why := p.MetLimit(s.Argv, "", "over quota")

	require.Nil(t, r)
	require.Equal(t, "two", n.Account())
	require.Equal(t, []string{tool, "last"}, p.ExecNamed(s, nil, n).Argv)
	require.Empty(t, late.Account())
	fault, _ := runtime.OfHost(why)
	require.True(t, fault, "it cannot be told whether it has met a limit: %v", why)
	require.False(t, met)
	evalSymlinks = filepath.EvalSymlinks
	met, why = p.MetLimit(s.Argv, "", "over quota")
	require.NoError(t, why)
	require.True(t, met)
}

// A program that is named without a path, or whose place cannot be followed by a fault of the host, is neither refused nor missing: what
// the order means cannot be said. Of a path that an order spells otherwise than an entry a fault tells nothing. No other test of this package
// runs beside this one: the disk fails for all of them.
func TestAProgramOnADiskThatFailsIsNotRefused(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	tool, link := filepath.Join(top, "tool"), filepath.Join(top, "link/tool")
	require.NoError(t, os.WriteFile(tool, nil, 0o700))
	require.NoError(t, os.Mkdir(filepath.Dir(link), 0o700))
	require.NoError(t, os.Symlink(tool, link))
	p, err := Parse([]byte("version: 1\nruntimes: [exec]\npath: " + top + "\ncommands: [[" + tool + ", good]]\n"))
	require.NoError(t, err)
	t.Cleanup(func() { evalSymlinks = filepath.EvalSymlinks })
	for _, tt := range []struct {
		argv  []string
		errno error
		code  commands.Code // "" = it is allowed
		fault bool
	}{
		{[]string{"tool", "good"}, nil, "", false},
		{[]string{"tool", "good"}, unix.EIO, commands.BadPath, true},
		{[]string{"tool", "bad"}, unix.EIO, commands.Policy, false},
		{[]string{"tool", "good"}, unix.EACCES, commands.Policy, false},
		{[]string{link, "good"}, nil, "", false},
		{[]string{link, "good"}, unix.EIO, commands.Policy, false},
		{[]string{link, "good"}, unix.ENOMEM, commands.BadPath, true},
		{[]string{"other", "good"}, unix.EIO, commands.Policy, false},
	} {
		evalSymlinks = func(path string) (string, error) {
			if tt.errno != nil {
				return "", &os.PathError{Op: "lstat", Path: path, Err: tt.errno}
			}
			return filepath.EvalSymlinks(path)
		}
		s := &commands.Spawn{Runtime: commands.RuntimeExec, Argv: tt.argv}

		n := p.OpenNamed(s)
		r := p.JudgeNamed(s, nil, n)

		n.Close()
		require.Equal(t, tt.fault, n.Fault != nil, "%+v", tt)
		require.Equal(t, tt.code == "", r == nil, "%+v", tt)
		if r != nil {
			require.Equal(t, tt.code, r.Code, "%+v", tt)
		}
	}
}
