package policy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/commands"
)

// host is one that holds some levels.
type host struct {
	root  bool
	holds []string
}

func (h host) Root() bool { return h.root }

func (h host) Fault(level string) error {
	for _, l := range h.holds {
		if l == level {
			return nil
		}
	}
	return errors.New("not here")
}

func TestTheLevelOfAHost(t *testing.T) {
	t.Parallel()
	const none, landlock, user, both = commands.IsolationNone, commands.IsolationLandlock, commands.IsolationUser, commands.IsolationUserLandlock
	root := host{true, []string{user, both}}
	other := host{false, []string{landlock}}
	for name, tt := range map[string]struct {
		text  string
		on    host
		level string
		fault string
	}{
		"the strongest as root":         {"", root, both, ""},
		"the strongest of another user": {"", other, landlock, ""},
		"an old kernel as root":         {"", host{true, []string{user}}, user, ""},
		"an old kernel":                 {"", host{}, "", "write isolation: none"},
		"root where nothing holds":      {"", host{root: true}, "", "user: not here"},
		"a level by name":               {"isolation: user\n", root, user, ""},
		"a level that does not hold":    {"isolation: user\n", other, "", "isolation user does not hold on this host: not here"},
		"none":                          {"isolation: none\n", other, none, ""},
		"none as root":                  {"isolation: none\n", root, "", "allow_root_agents: true"},
		"none as root, allowed":         {"isolation: none\nallow_root_agents: true\n", root, none, ""},
		"allowed is not demanded":       {"allow_root_agents: true\n", root, both, ""},
		"enough":                        {"min_isolation: user\n", root, both, ""},
		"not enough":                    {"min_isolation: user\n", other, landlock, "min_isolation is user"},
		"none is not enough":            {"isolation: none\nmin_isolation: landlock\n", other, none, "min_isolation is landlock"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte("version: 1\nruntimes: [exec]\ncommands: [\"*\"]\ncapabilities: [go]\n"+tt.text), 0o600))
			live, err := Open(dir)
			require.NoError(t, err)
			live.Isolates(tt.on)
			_, err = live.Reload("")
			require.Equal(t, tt.fault != "", err != nil, "it is read again where it holds")
			p := live.Now()
			order := &commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"true"}}

			level, err := p.Level()

			require.Equal(t, tt.level, level)
			if tt.fault != "" {
				require.ErrorContains(t, err, tt.fault)
				require.Equal(t, commands.Capability, p.Judge(order, nil).Code)
				require.Equal(t, []string{"go", commands.ReviewTaken}, p.Offers())
				return
			}
			require.NoError(t, err)
			require.Nil(t, p.Judge(order, nil))
			require.Equal(t, append([]string{"go", commands.ReviewTaken}, commands.IsolationCapabilities(level)...), p.Offers())
			order.Capabilities = []string{"isolation:user"}
			require.Equal(t, level != user && level != both, p.Judge(order, nil) != nil)
		})
	}
}

// A bubble is for those that ask for one, unless the policy says for whom.
func TestTheLevelOfAnOrder(t *testing.T) {
	t.Parallel()
	const landlock, user, both, bubble, userBubble = commands.IsolationLandlock, commands.IsolationUser, commands.IsolationUserLandlock, commands.IsolationBubble, commands.IsolationUserBubble
	root, other := host{true, []string{user, both, userBubble}}, host{false, []string{landlock, bubble}}
	for name, tt := range map[string]struct {
		text   string
		on     host
		demand []string
		level  string // "" = refused
	}{
		"nothing":                      {"", root, nil, both},
		"a bubble":                     {"", root, []string{bubble}, userBubble},
		"a bubble of another user":     {"", other, []string{bubble}, bubble},
		"more than there is":           {"", other, []string{user, bubble}, ""},
		"more than one level has":      {"", root, []string{landlock, bubble}, ""},
		"a level by name":              {"isolation: user+landlock\n", root, []string{bubble}, ""},
		"a bubble by name":             {"isolation: user+bubble\n", root, nil, userBubble},
		"rules in a bubble by name":    {"isolation: user+bubble\n", root, []string{landlock}, ""},
		"no bubble is enough":          {"min_isolation: landlock\n", other, []string{bubble}, ""},
		"none here":                    {"", host{true, []string{user, both}}, []string{bubble}, ""},
		"a bubble with a few ports":    {"connect_ports: [443]\n", root, []string{bubble}, ""},
		"a bubble without any":         {"connect_ports: []\n", root, []string{bubble}, userBubble},
		"a named one with a few ports": {"isolation: user+bubble\nconnect_ports: [443]\n", root, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte("version: 1\nruntimes: [exec]\ncommands: [\"*\"]\n"+tt.text), 0o600))
			live, err := Open(dir)
			require.NoError(t, err)
			live.Isolates(tt.on)
			_, _ = live.Reload("") // where it does not hold it is in force from the start
			order := &commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"true"}}
			for _, part := range tt.demand {
				order.Capabilities = append(order.Capabilities, commands.IsolationCapabilities(part)...)
			}

			level, err := live.Now().LevelFor(order)

			require.Equal(t, tt.level == "", err != nil, "%v", err)
			require.Equal(t, tt.level, level)
			require.Equal(t, tt.level == "", live.Now().Judge(order, nil) != nil)
		})
	}
}

// Whoever gets no bubble is told why.
func TestWhoGetsABubble(t *testing.T) {
	t.Parallel()
	const landlock, user, both, bubble, userBubble = commands.IsolationLandlock, commands.IsolationUser, commands.IsolationUserLandlock, commands.IsolationBubble, commands.IsolationUserBubble
	root, other := host{true, []string{user, both, userBubble}}, host{false, []string{landlock, bubble}}
	for name, tt := range map[string]struct {
		text  string
		on    host
		level string
		why   string
	}{
		"root":                     {"", root, userBubble, ""},
		"another user":             {"", other, bubble, ""},
		"one for all":              {"isolation: bubble\n", other, bubble, ""},
		"one for all, not here":    {"isolation: user+bubble\n", other, "", "not here"},
		"none here":                {"", host{false, []string{landlock}}, "", "not here"},
		"a level for all":          {"isolation: landlock\n", other, "", "the policy names isolation landlock for all agents; "},
		"something else is wanted": {"min_isolation: landlock\n", other, "", "min_isolation is landlock"},
		"a few ports":              {"connect_ports: [443]\n", other, "", "leave connect_ports out"},
	} {
		p, err := Parse([]byte("version: 1\n" + tt.text))
		require.NoError(t, err, name)

		level, err := p.On(tt.on).Bubble()

		require.Equal(t, tt.level, level, name)
		if tt.why != "" {
			require.ErrorContains(t, err, tt.why, name)
		} else {
			require.NoError(t, err, name)
		}
	}
}

func TestIsolationIsCheckedInThePolicy(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"isolation: gaol\n":                                     `isolation "gaol" is not known`,
		"min_isolation: root\n":                                 `min_isolation "root" is not known`,
		"agent_users: -1\n":                                     "agent_users -1 is not the first",
		"read_paths: [usr]\n":                                   `read_paths has "usr"`,
		"write_paths: [/x, ./y]\n":                              `write_paths has "./y"`,
		"read_paths: [/opt/go/**]\n":                            `read_paths has "/opt/go/**", with a *`,
		"write_paths: [/x, '/y/*']\n":                           `write_paths has "/y/*", with a *`,
		"connect_ports: [443, 0]\n":                             "connect_ports has 0",
		"capabilities: ['isolation:user']\n":                    "is offered by itself",
		"capabilities: ['gpu a100']\n":                          `capability "gpu a100" is not a name`,
		"capabilities: [" + strings.Repeat("a, ", 240) + "b]\n": "a spoke may name 240 of 3584",
		"capabilities: [" + strings.Repeat(strings.Repeat("a", 60)+", ", 60) + "b]\n": "61 capabilities of 3601 bytes together",
		"allow_root_agents: perhaps\n": "write true or false",
	} {
		_, err := Parse([]byte("version: 1\n" + text))
		require.ErrorContains(t, err, says, text)
	}
}

func TestWhatAnOrderReaches(t *testing.T) {
	t.Parallel()
	target, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	link := filepath.Join(target, "link")
	target = filepath.Join(target, "tool")
	require.NoError(t, os.WriteFile(target, nil, 0o700))
	require.NoError(t, os.Symlink(target, link))
	job := filepath.Join(filepath.Dir(target), "job")
	require.NoError(t, os.Mkdir(job, 0o700))
	p, err := Parse([]byte("version: 1\nruntimes: [exec]\ncommands: [\"*\"]\ndirectories: [\"*\"]\npath: /opt/x/bin:/usr/bin\nhome: /srv/home\nread_paths: [/data]\nwrite_paths: [/dev/shm]\nconnect_ports: [443]\n"))
	require.NoError(t, err)

	order := &commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{link}, Dir: job}
	n := p.OpenNamed(order)
	defer n.Close()
	require.NoError(t, os.Rename(job, job+"2"))
	require.NoError(t, os.Symlink("/etc", job))
	require.NoError(t, os.Remove(link))

	got, err := p.Paths(order, commands.IsolationLandlock, n)

	require.NoError(t, err)
	require.Equal(t, Paths{Read: []string{"/data", "/opt/x/bin", "/usr/bin"}, Write: []string{"/dev/shm", "/srv/home"}, Dir: job, Program: target, Names: map[string]string{target: link}, Ports: []int64{443}}, got,
		"what was opened, whatever is there now")
	require.NoError(t, os.Symlink("/etc", link))
	etc := p.OpenNamed(order)
	defer etc.Close()
	got, err = p.Paths(order, commands.IsolationLandlock, etc)
	require.NoError(t, err)
	require.Empty(t, got.Program, "a directory is no program")
	none, err := Parse([]byte("version: 1\nconnect_ports: []\n"))
	require.NoError(t, err)
	got, err = none.Paths(&commands.Spawn{}, commands.IsolationLandlock, &Named{})
	require.NoError(t, err)
	require.False(t, got.AnyPort)
}

// Where agents have the spoke's own user, nothing opens its data directory to them: neither an order, nor what the
// policy lists.
func TestTheDataDirectoryIsOpenedToNobody(t *testing.T) {
	t.Parallel()
	const landlock, user, bubble = commands.IsolationLandlock, commands.IsolationUser, commands.IsolationBubble
	shared, own := host{false, []string{landlock, bubble}}, host{true, []string{user}}
	top, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	dir, beside, link := filepath.Join(top, "state", "attic"), filepath.Join(top, "state", "attic2"), filepath.Join(top, "link")
	for _, d := range []string{filepath.Join(dir, "keys"), beside} {
		require.NoError(t, os.MkdirAll(d, 0o700))
	}
	require.NoError(t, os.Symlink(filepath.Join(dir, "keys"), link))
	judge := func(on host, text string, s commands.Spawn) *commands.Refused {
		if !strings.Contains(text, "commands:") {
			text += "commands: [\"*\"]\n"
		}
		require.NoError(t, os.WriteFile(File(dir), []byte("version: 1\nruntimes: [exec]\ndirectories: [\"*\"]\n"+text), 0o600))
		live, err := Open(dir)
		require.NoError(t, err)
		live.Isolates(on)
		if s.Runtime = commands.RuntimeExec; s.Argv == nil {
			s.Argv = []string{"true"}
		}
		return live.Now().Judge(&s, nil)
	}
	aBubble := commands.IsolationCapabilities(bubble)
	for _, path := range []string{"/", top, filepath.Dir(dir), dir, filepath.Join(dir, "keys"), link} {
		for _, demand := range [][]string{nil, aBubble} {
			r := judge(shared, "", commands.Spawn{Dir: path, Capabilities: demand})
			require.NotNil(t, r, path)
			require.Equal(t, commands.BadPath, r.Code, path)
		}
		require.Nil(t, judge(own, "", commands.Spawn{Dir: path}), path)
		require.Nil(t, judge(shared, "isolation: none\n", commands.Spawn{Dir: path}), path)
		for _, what := range []string{"read_paths: [%s]\n", "write_paths: [%s]\n", "home: %s\n", "path: /bin:%s\n"} {
			text := fmt.Sprintf(what, path)
			r := judge(shared, text, commands.Spawn{})
			require.NotNil(t, r, text)
			require.Equal(t, commands.Capability, r.Code, text)
			require.Nil(t, judge(own, text, commands.Spawn{}), text)
		}
	}
	require.Equal(t, commands.BadPath, judge(shared, "", commands.Spawn{Argv: []string{filepath.Join(dir, "keys", "tool")}}).Code)
	require.Nil(t, judge(shared, "write_paths: ["+beside+"]\nhome: "+beside+"\n", commands.Spawn{Dir: beside, Capabilities: aBubble}))
	_, err = func() (string, error) {
		judge(shared, "write_paths: ["+top+"]\n", commands.Spawn{})
		live, err := Open(dir)
		require.NoError(t, err)
		live.Isolates(shared)
		return live.Now().Level()
	}()
	require.EqualError(t, err, "write_paths of the policy: "+top+" holds the data directory of this spoke, and agents have the user of the spoke here; name a directory beside it",
		"and no word of running without isolation")
	entry := judge(shared, "commands: [{run: \"true\", home: "+top+"}]\n", commands.Spawn{})
	require.NotNil(t, entry, "of one entry")
}

// What a host withdraws it can withdraw wherever it is.
func TestAPolicyThatStartsNothingHoldsOnEveryHost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "policy.yaml")
	rules := func(runtimes string) {
		require.NoError(t, os.WriteFile(path, []byte("version: 1\nruntimes: ["+runtimes+"]\ncommands: [a]\n"), 0o600))
	}
	rules("exec")
	live, err := Open(dir)
	require.NoError(t, err)
	live.Isolates(FoundOf(host{}))
	before := live.Now()

	change, err := live.Reload("")

	require.ErrorContains(t, err, path+": no level of isolation holds on this host (user+landlock: not here; ")
	require.Equal(t, Change{Policy: before.ID(), Was: before.ID()}, change)
	require.Same(t, before, live.Now())
	rules("noop")
	_, err = live.Reload("")
	require.NoError(t, err)
	require.NotEqual(t, before.ID(), live.Now().ID())
}

// A directory that is not there is said before an order finds out.
func TestADirectoryThatIsNotThereIsSaid(t *testing.T) {
	t.Parallel()
	p, err := Parse([]byte("version: 1\nruntimes: [exec]\ncommands: [\"*\"]\ndirectories: [\"*\"]\n"))
	require.NoError(t, err)
	for name, says := range map[string]string{"": "", "/usr": "", "/usr/not-there": "there is no directory /usr/not-there"} {
		require.Equal(t, says, p.Reach("", &commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"/bin/true"}, Dir: name}).Missing)
	}
}

// What a disk does not tell of the data directory, or of a path, does not say that the one is not in the other: nothing is opened meanwhile, and
// no order is refused for it.
func TestADiskThatFailsOpensNothing(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	dir, beside := filepath.Join(top, "attic"), filepath.Join(top, "beside")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.Mkdir(beside, 0o700))
	device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err == nil {
		err = unix.Mount("gone", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=%o,user_id=0,group_id=0", device.Fd(), unix.S_IFDIR))
	}
	if err != nil {
		t.Logf("this process may mount nothing here (%v): a failing disk is tried where it may, as root with /dev/fuse", err)
		return
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	require.NoError(t, device.Close())

	for data, path := range map[string]string{dir: beside, beside: dir} {
		p := &Policy{dir: data}
		p.ReadPaths = []string{path}
		require.NoError(t, p.checkOwn(commands.IsolationLandlock))

		_, err := p.Paths(&commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"/bin/true"}}, commands.IsolationLandlock, &Named{})

		require.ErrorIs(t, err, unix.ENOTCONN)
	}
}
