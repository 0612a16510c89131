package policy_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

func TestPresets(t *testing.T) {
	t.Parallel()
	exec := func(argv ...string) *commands.Spawn {
		return &commands.Spawn{Runtime: commands.RuntimeExec, Argv: argv}
	}
	noop := &commands.Spawn{Runtime: commands.RuntimeNoop}
	tests := map[string]struct{ yes, no []*commands.Spawn }{
		"deny": {nil, []*commands.Spawn{noop, exec("echo"), exec("true")}},
		"commands": {[]*commands.Spawn{noop, exec("echo", "hi"), exec("echo"), exec("sleep", "1"), exec("uptime"), exec("date", "-u")},
			[]*commands.Spawn{exec("sh", "-c", "echo"), exec("go", "test", "-exec", "sh", "./..."), exec("date", "-u", "-s", "noon"), exec("date", "-f", "/etc/shadow")}},
		"open": {[]*commands.Spawn{noop, exec("sh", "-c", "echo"), {Runtime: commands.RuntimeExec, Argv: []string{"a"}, Dir: "/srv", Env: []commands.EnvVar{{Name: "X"}}}}, nil},
	}
	require.Len(t, policy.Presets, len(tests))
	for name, tt := range tests {
		p, err := policy.Parse([]byte(policy.Presets[name]))
		require.NoError(t, err, name)
		for _, s := range tt.yes {
			require.Nil(t, p.Judge(s, nil), "%s: %v", name, s.Argv)
		}
		for _, s := range tt.no {
			require.NotNil(t, p.Judge(s, nil), "%s: %v", name, s.Argv)
		}
		require.Equal(t, 24*time.Hour, p.Timeout(0), "the longest run is the usual one")
		require.Equal(t, time.Minute, p.Timeout(time.Minute))
		require.Equal(t, 24*time.Hour, p.Timeout(48*time.Hour))
	}
}

func TestAPolicyCanBeWrittenAndReadAgain(t *testing.T) {
	t.Parallel()
	for name, text := range policy.Presets {
		p, err := policy.Parse([]byte(text))
		require.NoError(t, err)

		again, err := p.Text()
		require.NoError(t, err)
		same, err := policy.Parse(again)

		require.NoError(t, err, name)
		require.Equal(t, p.ID(), same.ID())
		text, err := same.Text()
		require.NoError(t, err)
		require.Equal(t, string(again), string(text))
	}
}

// harmless are the programs that the preset may allow any argument: none of
// theirs starts a program, or reads or writes a file.
var harmless = []string{"echo", "sleep"}

// The preset to edit is no shell in disguise: what it opens to any argument is
// known to be harmless, an order can neither name a program by its path nor
// bring variables or a directory.
func TestThePresetOfCommandsLeadsToNoShell(t *testing.T) {
	t.Parallel()
	p, err := policy.Parse([]byte(policy.Presets["commands"]))
	require.NoError(t, err)

	for _, c := range p.Commands {
		require.False(t, c.Any())
		if c.Run[len(c.Run)-1] == "**" {
			require.Contains(t, harmless, c.Run[0])
			require.Len(t, c.Run, 2)
		}
	}

	require.Empty(t, p.Environment)
	require.Empty(t, p.Directories)
	for _, line := range []string{
		"go test -exec sh", "go vet -toolexec=sh", "go build", "git -c core.pager=sh log", "git status", "tar xf a", "find . -exec sh", "env sh", "xargs sh", "make",
		"python3 -c x", "perl -e x", "awk x", "sed e", "vi", "ssh x", "curl x", "cat /etc/passwd", "printenv", "ps e", "dd if=a of=b", "tee x", "nice sh", "timeout 1 sh",
		"/bin/echo x", "./echo x", "uptime -s", "uname -a -s", "df -h /", "date", "date -u -d now",
	} {
		require.NotNil(t, p.Judge(&commands.Spawn{Runtime: commands.RuntimeExec, Argv: strings.Fields(line)}, nil), line)
	}
}

// What a policy says is understood or the policy is refused, with the line.
func TestPolicyThatIsRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, want string }{
		"an unknown key":             {"version: 1\nruntimes: []\ncommand: [echo]\n", "[3:1]"},
		"an unknown key inside":      {"version: 1\nlimits:\n  timeout: 1h\n  cores: 2\n", "[4:3]"},
		"a key twice":                {"version: 1\ncommands: [echo]\ncommands: [go]\n", "[3:1]"},
		"a tab":                      {"version: 1\nlimits:\n\ttimeout: 1h\n", "[3:1]"},
		"a text for a list":          {"version: 1\nruntimes: exec\n", "[2:11] a text is not what belongs here; write a list"},
		"the wildcard in between":    {"version: 1\ncommands:\n  - echo\n  - go ... test\n", "[4:5] ... stands for any further arguments; it can only be the last word"},
		"the wildcard alone":         {"version: 1\ncommands: ['...']\n", "[2:12] an entry names a program before its ..."},
		"the long star in between":   {"version: 1\ncommands: ['go ** test']\n", "[2:12] ** stands for any further arguments; it can only be the last word; * is exactly one argument"},
		"a star for the program":     {"version: 1\ncommands: ['* -v']\n", "an entry names a program before its *; write \"*\" alone to allow every command"},
		"the long star alone":        {"version: 1\ncommands: ['**']\n", "[2:12] an entry names a program before its **"},
		"a star in a word":           {"version: 1\ncommands: ['go vet *.go']\n", `[2:12] word 3, "*.go": * is a whole argument and cannot be a part of one; write \* for a star`},
		"three stars":                {"version: 1\ncommands: ['go ***']\n", "* is a whole argument"},
		"an empty entry":             {"version: 1\ncommands: ['']\n", "[2:12] an entry of commands is empty"},
		"an entry without a run":     {"version: 1\ncommands:\n  - env: {A: b}\n", "an entry of commands is empty"},
		"a NUL in a word":            {"version: 1\ncommands:\n  - run: [\"ec\\0ho\"]\n", "word 1 of an entry holds a NUL or is not UTF-8"},
		"a word that is not UTF-8":   {"version: 1\ncommands:\n  - run: [echo, !!binary /w==]\n", "word 2 of an entry holds a NUL or is not UTF-8"},
		"a program that moves":       {"version: 1\ncommands: [./build]\n", `[2:12] program "./build" is relative`},
		"an unknown key of an entry": {"version: 1\ncommands:\n  - run: echo\n    envv: {A: b}\n", "[4:5]"},
		"a PATH among variables":     {"version: 1\nenv: {Path: /x}\n", `variable "Path" has a setting of its own; write path: VALUE`},
		"a variable that is ours":    {"version: 1\nenv: {SPAWNMESH_TASK: x}\n", `"SPAWNMESH_TASK"`},
		"variables that are twins":   {"version: 1\nenv: {A: x, a: y}\n", `"A" and "a" differ in case only`},
		"a name that is none":        {"version: 1\ncommands:\n  - run: x\n    env: {'A=B': x}\n", `variable "A=B"`},
		"a pattern of homes":         {"version: 1\nhome: /home/*\n", `[2:7] home "/home/*" has a *, which stands for nothing in a path; write the one directory that it is`},
		"a relative home":            {"version: 1\nhome: x\n", `[2:7] home "x" is not absolute`},
		"a relative path":            {"version: 1\npath: /bin:y\n", `[2:7] path has the entry "y"`},
		"what to do at revocation":   {"version: 1\non_revoke: pray\n", `[2:12] on_revoke "pray" is not known; write kill or finish`},
		"a lease that is too short":  {"version: 1\nconnection_lease: 4m59s\n", "[2:19] connection_lease"},
		"a lease that is too long":   {"version: 1\nconnection_lease: 8d\n", "duration from 5m to 7d"},
		"a lease of nonsense":        {"version: 1\nconnection_lease: d\n", "duration from 5m to 7d"},
		"no closing bracket":         {"version: 1\nruntimes: [exec\n", "[2:11]"},
		"nothing":                    {"", "version is 0"},
		"no version":                 {"runtimes: []\n", "version is 0"},
		"version 2":                  {"version: 2\n", "[1:10] version is 2; this program knows version 1"},
		"an unknown runtime":         {"version: 1\nruntimes: [docker]\n", `[2:12] runtime "docker" is not known`},
		"a directory that moves":     {"version: 1\ndirectories: [srv]\n", `directory "srv" is not absolute`},
		"a pattern of directories":   {"version: 1\ndirectories: [/srv, /srv/proj/**]\n", `[2:21] directory "/srv/proj/**" has a *, which stands for nothing in a path; a directory allows all below it: write /srv/proj`},
		"a pattern of names":         {"version: 1\ndirectories: [/srv/a*]\n", "write /srv"},
		"a pattern of the root":      {"version: 1\ndirectories: [/*]\n", "list each by its whole path, or write '*' for all"},
		"a timeout without a unit":   {"version: 1\nlimits:\n  timeout: 24\n", "limits.timeout"},
		"a negative timeout":         {"version: 1\nlimits:\n  timeout: -1h\n", "limits.timeout"},
		"a size without a number":    {"version: 1\nlimits: {memory: GiB}\n", "[2:18] limits.memory"},
		"a size in other units":      {"version: 1\nlimits: {memory: 2GB}\n", "such as 512MiB, 2GiB or a number of bytes"},
		"a size too large":           {"version: 1\nlimits: {memory: 8388608TiB}\n", "limits.memory"},
		"too little memory":          {"version: 1\nlimits: {memory: 1023KiB}\n", "limits.memory"},
		"a negative size":            {"version: 1\nlimits: {memory: -2GiB}\n", "limits.memory"},
		"a negative number of pids":  {"version: 1\nlimits: {pids: -1}\n", `[2:16] limits.pids "-1" is not a whole number from 1 to 4194304, such as 100; leave it out for no limit`},
		"no processor time":          {"version: 1\nlimits: {cpu_time: 0s}\n", "[2:20] limits.cpu_time is 0; leave it out, or write none, for no limit"},
		"fewer than no processors":   {"version: 1\nlimits: {cpus: -1}\n", `[2:16] limits.cpus "-1" is not a number of processors from 0.01 to 4096`},
		"processors for nothing":     {"version: 1\nlimits: {cpus: 0.001}\n", `limits.cpus "0.001"`},
		"idle without a unit":        {"version: 1\nlimits: {idle: 30}\n", "[2:16] limits.idle"},
		"idle for no time":           {"version: 1\nlimits: {idle: 999ms}\n", "at least 1s"},
		"less than no output":        {"version: 1\nlimits: {max_output: -1}\n", `limits.max_output "-1" is not a size`},
		"less than no disk":          {"version: 1\nlimits: {disk: -1}\n", `[2:16] limits.disk "-1" is not a size, such as 512MiB, 2GiB or a number of bytes; leave it out for 64GiB, or write none for no limit`},
		"less than no file":          {"version: 1\nlimits: {files: -1}\n", `[2:17] limits.files "-1" is not a whole number`},
		"a file of less than none":   {"version: 1\nlimits: {file_size: -1}\n", `limits.file_size "-1" is not a size`},
		"a negative reserve":         {"version: 1\nlimits: {reserve: -1}\n", `limits.reserve "-1" is not a size`},
		"a reserve of -1 files":      {"version: 1\nlimits: {reserve_files: -1}\n", `limits.reserve_files "-1" is not a whole number of at least 0`},
		"a negative number of files": {"version: 1\nlimits: {open_files: -1}\n", `limits.open_files "-1" is not a whole number of at least 16`},
		"an output in other units":   {"version: 1\nlimits: {output: 2MB}\n", `[2:18] limits.output "2MB" is not a size, such as 512MiB, 2GiB or a number of bytes`},
		"an output of many parts":    {"version: 1\nlimits: {output: [1]}\n", "[2:18] a list is not what belongs here; write a text"},
		"a negative output":          {"version: 1\nlimits:\n  output: -1\n", "limits.output"},
		"words for processors":       {"version: 1\nlimits: {cpus: lots}\n", `[2:16] limits.cpus "lots" is not a number of processors from 0.01 to 4096, such as 1.5 or 2`},
		"half a process":             {"version: 1\nlimits: {pids: 1.5}\n", `[2:16] limits.pids "1.5" is not a whole number`},
		"too few open files":         {"version: 1\nlimits: {open_files: 15}\n", `limits.open_files "15" is not a whole number of at least 16, as no program starts with fewer`},
		"no bound of open files":     {"version: 1\nlimits: {open_files: none}\n", "limits.open_files cannot be none; leave it out for 1024, which a process may raise"},
		"no bound of processes":      {"version: 1\nlimits: {pids: none}\n", "limits.pids cannot be none; leave it out for no limit, or 8192 where agents have users of their own"},
		"a word for a whole number":  {"version: 1\nagent_users: many\n", "[2:14] a text is not what belongs here; write a whole number"},
		"a second document":          {"version: 1\nruntimes: [exec]\ncommands: ['*']\n---\nversion: 1\n", "second document"},
		"2 MiB of it":                {"version: 1\n" + strings.Repeat("# "+strings.Repeat("x", 1022)+"\n", 2048), "larger than"},
		"a list for the whole file":  {"- version: 1\n", "[1:1]"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(policy.File(dir), []byte(tt.text), 0o644))

			_, err := policy.Load(dir)

			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, policy.File(dir))
		})
	}
}

// 0 is no limit in one place and nothing allowed in another, so nobody can mean it; of a reserve it is clear.
func TestZeroIsNoLimit(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"timeout", "output", "memory", "pids", "cpu_time", "cpus", "open_files", "disk", "files", "max_output", "idle", "file_size"} {
		for _, zero := range []string{"0", "0.0", "0s", "0MiB"} {
			_, err := policy.Parse([]byte("version: 1\nlimits: {" + name + ": " + zero + "}\n"))

			require.ErrorContains(t, err, "limits."+name+" is 0; leave it out", zero)
		}
	}
	p, err := policy.Parse([]byte("version: 1\nlimits: {reserve: 0, reserve_files: 0}\n"))
	require.NoError(t, err)
	require.Zero(t, p.Limits.ReserveBytes())
	require.Zero(t, p.Limits.ReserveFiles())
}

// none is no limit, also where there is one when nothing is said.
func TestNoneIsNoLimit(t *testing.T) {
	t.Parallel()
	p, err := policy.Parse([]byte("version: 1\nlimits: {timeout: none, memory: none, cpu_time: none, cpus: none, disk: none, files: none, max_output: none, idle: none, file_size: none, reserve: none, reserve_files: none, held_inputs: none}\n"))
	require.NoError(t, err)
	l := p.Limits

	for name, n := range map[string]int64{"timeout": int64(p.Timeout(0)), "memory": p.Memory(0), "cpu_time": int64(l.CPU()), "cpus": l.MilliCPUs(), "disk": l.DiskBytes(), "files": l.DiskFiles(),
		"max_output": l.Written(), "idle": int64(l.Quiet()), "file_size": l.FileBytes(), "reserve": l.ReserveBytes(), "reserve_files": l.ReserveFiles(), "held_inputs": l.HeldInputs()} {
		require.Zero(t, n, name)
	}
	require.Equal(t, "no end of time, 1024 open files, which it may raise, no end of disk and files, 16MiB kept of each output stream", l.InWords())
	text, err := p.Text()
	require.NoError(t, err)
	again, err := policy.Parse(text)
	require.NoError(t, err, "%s", text)
	require.Equal(t, p.ID(), again.ID())
}

func TestPolicyFiles(t *testing.T) {
	t.Parallel()
	open := []byte(policy.Presets["open"])
	echo := &commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"echo"}}
	t.Run("without one nothing is allowed", func(t *testing.T) {
		p, err := policy.Load(t.TempDir())
		require.NoError(t, err)
		require.NotNil(t, p.Judge(echo, nil))
	})
	t.Run("one that others can write is refused", func(t *testing.T) {
		for _, mode := range []os.FileMode{0o666, 0o664, 0o602} {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(policy.File(dir), open, 0o600))
			require.NoError(t, os.Chmod(policy.File(dir), mode))
			_, err := policy.Load(dir)
			require.ErrorContains(t, err, "run: chmod go-w "+policy.File(dir))
		}
	})
	t.Run("one with values that others can read is refused", func(t *testing.T) {
		const values = "env: {TOKEN: x}\n"
		for text, secret := range map[string]bool{string(open): false, string(open) + values: true,
			"version: 1\nruntimes: [exec]\ncommands:\n  - run: echo\n    " + values: true} {
			for mode, closed := range map[os.FileMode]bool{0o600: true, 0o400: true, 0o640: false, 0o604: false, 0o644: false} {
				dir := t.TempDir()
				require.NoError(t, os.WriteFile(policy.File(dir), []byte(text), 0o600))
				require.NoError(t, os.Chmod(policy.File(dir), mode))
				_, err := policy.Load(dir)
				if secret && !closed {
					require.ErrorContains(t, err, "others can read it; run: chmod 600 "+policy.File(dir))
				} else {
					require.NoError(t, err)
				}
			}
		}
	})
	t.Run("one that is a directory is refused", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.Mkdir(policy.File(dir), 0o755))
		_, err := policy.Load(dir)
		require.ErrorContains(t, err, "reading the policy")
	})
	t.Run("one of another user is refused", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Log("only root can give a file away; others see that their own is accepted, below")
			return
		}
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(policy.File(dir), open, 0o644))
		require.NoError(t, os.Chown(policy.File(dir), 65534, -1))
		_, err := policy.Load(dir)
		require.ErrorContains(t, err, "belongs to user 65534 and must belong to the user that runs this; run: chown 0 "+policy.File(dir))
	})
	t.Run("a good one is read", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(policy.File(dir), open, 0o644))
		p, err := policy.Load(dir)
		require.NoError(t, err)
		require.Nil(t, p.Judge(echo, nil))
		require.Equal(t, policy.DefaultPath, p.Exec(echo, nil).Path)
	})
}

func TestJudge(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, d := range []string{"allowed/inside", "allowed-not", "secret"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, d), 0o755))
	}
	require.NoError(t, os.Symlink(filepath.Join(root, "secret"), filepath.Join(root, "allowed", "escape")))
	require.NoError(t, os.Symlink(filepath.Join(root, "allowed", "inside"), filepath.Join(root, "allowed", "stay")))
	rules, err := policy.Parse([]byte(`
version: 1
runtimes: [exec]
commands: [echo ..., go test ..., /opt/tools/make ..., "git  status", uptime, [say, "two words", ...]]
directories: [` + filepath.Join(root, "allowed") + `, /usr/share/]
environment: [CI, LANG]
capabilities: [go, gpu]
`))
	require.NoError(t, err)
	argv := func(words ...string) func(*commands.Spawn) { return func(s *commands.Spawn) { s.Argv = words } }
	dir := func(d string) func(*commands.Spawn) { return func(s *commands.Spawn) { s.Dir = d } }
	env := func(names ...string) func(*commands.Spawn) {
		return func(s *commands.Spawn) {
			for _, n := range names {
				s.Env = append(s.Env, commands.EnvVar{Name: n})
			}
		}
	}
	needs := func(c ...string) func(*commands.Spawn) { return func(s *commands.Spawn) { s.Capabilities = c } }
	tests := map[string]struct {
		change func(*commands.Spawn)
		code   commands.Code // "" = allowed
	}{
		"an allowed command":                          {argv("echo"), ""},
		"with any arguments":                          {argv("echo", "-n", "$(id)"), ""},
		"an allowed beginning":                        {argv("go", "test"), ""},
		"an allowed beginning and more":               {argv("go", "test", "./...", "-race"), ""},
		"words with more space between":               {argv("git", "status"), ""},
		"an exact command":                            {argv("uptime"), ""},
		"an exact command and more":                   {argv("uptime", "-p"), commands.Policy},
		"an exact command with an empty argument":     {argv("uptime", ""), commands.Policy},
		"exact words and more":                        {argv("git", "status", "--help"), commands.Policy},
		"the wildcard as an argument":                 {argv("uptime", "..."), commands.Policy},
		"the wildcard's own word":                     {argv("go", "test", "..."), ""},
		"a word with a blank":                         {argv("say", "two words", "x"), ""},
		"its halves":                                  {argv("say", "two", "words"), commands.Policy},
		"only half of an allowed beginning":           {argv("go"), commands.Policy},
		"another second word":                         {argv("go", "run"), commands.Policy},
		"a beginning in one word":                     {argv("go test"), commands.Policy},
		"a longer word":                               {argv("echoes"), commands.Policy},
		"another case":                                {argv("Echo"), commands.Policy},
		"a path that is allowed":                      {argv("/opt/tools/make", "all"), ""},
		"the name of a path that PATH lacks":          {argv("make"), commands.Policy},
		"a path to a name that is allowed":            {argv("/bin/echo"), commands.Policy},
		"a relative path to it":                       {argv("./echo"), commands.Policy},
		"another runtime":                             {func(s *commands.Spawn) { s.Runtime, s.Argv = commands.RuntimeNoop, nil }, commands.Policy},
		"an allowed directory":                        {dir(filepath.Join(root, "allowed")), ""},
		"one inside it":                               {dir(filepath.Join(root, "allowed", "inside")), ""},
		"a link that stays inside":                    {dir(filepath.Join(root, "allowed", "stay")), ""},
		"a link that leads out":                       {dir(filepath.Join(root, "allowed", "escape")), commands.BadPath},
		"a directory with the same first letters":     {dir(filepath.Join(root, "allowed-not")), commands.BadPath},
		"its parent":                                  {dir(root), commands.BadPath},
		"one that is not there":                       {dir(filepath.Join(root, "allowed", "nothing")), commands.BadPath},
		"one that is allowed with a slash at its end": {dir("/usr/share"), ""},
		"one that climbs out":                         {dir(filepath.Join(root, "allowed") + "/../secret"), commands.BadPath},
		"one that climbs and comes back":              {dir(filepath.Join(root, "allowed") + "/../allowed"), commands.BadPath},
		"one with a slash too many":                   {dir(filepath.Join(root, "allowed") + "/"), commands.BadPath},
		"a relative one":                              {dir("allowed"), commands.BadPath},
		"allowed variables":                           {env("CI", "LANG"), ""},
		"a variable that is not allowed":              {env("CI", "LD_PRELOAD"), commands.Policy},
		"a variable in another case":                  {env("ci"), commands.Policy},
		"capabilities that are here":                  {needs("gpu", "go"), ""},
		"a capability that is not":                    {needs("go", "tpu"), commands.Capability},
		"a capability in another case":                {needs("GPU"), commands.Capability},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := &commands.Spawn{Task: "x", Runtime: commands.RuntimeExec, Argv: []string{"echo"}}
			tt.change(s)

			values := map[string]string{}
			for _, v := range s.Env {
				values[v.Name] = "very-secret"
			}
			got := rules.Judge(s, values)

			if tt.code == "" {
				require.Nil(t, got)
				return
			}
			require.NotNil(t, got)
			require.Equal(t, tt.code, got.Code)
			require.NotContains(t, got.Why+got.Hint, "very-secret")
			if tt.code != commands.BadPath || filepath.Clean(s.Dir) == s.Dir && filepath.IsAbs(s.Dir) {
				require.Contains(t, got.Hint, "policy.yaml", "it says what could be allowed where")
			}
		})
	}
}

// A pattern is the whole command line: nothing that it does not say is allowed.
func TestAPatternIsAWholeCommandLine(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ entry, yes, no []string }{
		"one argument":       {[]string{"git", "clone", "*", "--depth", "1"}, []string{"git clone x --depth 1", "git clone -x --depth 1"}, []string{"git clone --depth 1", "git clone x y --depth 1", "git clone x --depth", "git clone x --depth 1 y", "git clone x", "git", "git clone"}},
		"several":            {[]string{"cp", "*", "*"}, []string{"cp a b", "cp * *"}, []string{"cp a", "cp a b c", "cp"}},
		"the rest":           {[]string{"ls", "-l", "**"}, []string{"ls -l", "ls -l a", "ls -l a b **"}, []string{"ls", "ls a -l", "ls -la"}},
		"one, then the rest": {[]string{"ls", "*", "**"}, []string{"ls a", "ls a b c"}, []string{"ls"}},
		"a literal star":     {[]string{"echo", `\*`, `a\*b`, `\*\*`}, []string{"echo * a*b **"}, []string{`echo \* a*b **`, "echo x a*b **", "echo * aXb **", "echo * a*b"}},
		"a backslash":        {[]string{"grep", `\d`, `\\*`}, []string{`grep \d \*`}, []string{"grep d *", `grep \d x`}},
		"the older spelling": {[]string{"ls", "..."}, []string{"ls", "ls a b"}, []string{"lsof"}},
	}
	for name, tt := range tests {
		list, err := json.Marshal(tt.entry)
		require.NoError(t, err)
		p, err := policy.Parse([]byte("version: 1\nruntimes: [exec]\ncommands: [" + string(list) + "]\n"))
		require.NoError(t, err, name)
		judge := func(line string) *commands.Refused {
			return p.Judge(&commands.Spawn{Runtime: commands.RuntimeExec, Argv: strings.Fields(line)}, nil)
		}

		for _, line := range tt.yes {
			require.Nil(t, judge(line), "%s: %s", name, line)
		}
		for _, line := range tt.no {
			require.NotNil(t, judge(line), "%s: %s", name, line)
		}
		require.Nil(t, p.Judge(&commands.Spawn{Runtime: commands.RuntimeExec, Argv: strings.Fields(tt.yes[0])}, nil))
	}
	p, err := policy.Parse([]byte("version: 1\nruntimes: [exec]\ncommands: [[say, '*']]\n"))
	require.NoError(t, err)
	require.Nil(t, p.Judge(&commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"say", ""}}, nil), "an empty argument is one, too")
}

// An entry that names a file means that file, under that name: what an order calls so
// is resolved, and what runs is what the entry names.
func TestAnEntryThatNamesAFileMeansThatFile(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	at := func(name string) string { return filepath.Join(root, name) }
	for _, d := range []string{"bin", "other", "sly"} {
		require.NoError(t, os.Mkdir(at(d), 0o755))
	}
	for _, f := range []string{"bin/box", "other/tool", "bin/tool"} {
		require.NoError(t, os.WriteFile(at(f), []byte("#!/bin/sh\n"), 0o755))
	}
	for link, to := range map[string]string{"alias": "bin", "bin/list": "box", "bin/shell": "box", "sly/tool": at("bin/tool"), "sly/list": at("other/tool")} {
		require.NoError(t, os.Symlink(to, at(link)))
	}
	rules := "version: 1\nruntimes: [exec]\npath: %s\ncommands: [%s **, %s **]\n"
	load := func(path string) *policy.Policy {
		p, err := policy.Parse(fmt.Appendf(nil, rules, path, at("bin/tool"), at("bin/list")))
		require.NoError(t, err)
		return p
	}
	first, last := load(at("bin")+":"+at("other")), load(at("other")+":"+at("bin"))
	for name, tt := range map[string]struct {
		p       *policy.Policy
		program string
		runs    string // "" = refused
	}{
		"its path":                            {first, at("bin/tool"), at("bin/tool")},
		"its name, where PATH leads to it":    {first, "tool", at("bin/tool")},
		"its name, where PATH leads to other": {last, "tool", ""},
		"a path through a link":               {first, at("alias/tool"), at("bin/tool")},
		"a path that is not the shortest":     {first, at("other/../bin/tool"), at("bin/tool")},
		"a link elsewhere to it":              {first, at("sly/tool"), at("bin/tool")},
		"another file of its name":            {first, at("other/tool"), ""},
		"a link of its name to another file":  {first, at("sly/list"), ""},
		"the file behind its name":            {first, at("bin/box"), ""},
		"another name of the same file":       {first, at("bin/shell"), ""},
		"another name, by PATH":               {first, "shell", ""},
		"a relative path":                     {first, "bin/tool", ""},
		"one that is not there":               {first, at("gone/tool"), ""},
	} {
		s := &commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{tt.program, "x"}}

		refused := tt.p.Judge(s, nil)

		require.Equal(t, tt.runs == "", refused != nil, name)
		if tt.runs != "" {
			require.Equal(t, []string{tt.runs, "x"}, tt.p.Exec(s, nil).Argv, name)
		}
	}
}

// The star stands for variables that are harmless. One that makes programs run
// other code is refused as any other thing is that the host may allow.
func TestAnyVariableButADangerousOne(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		allowed, name, value string
		code                 commands.Code // "" = allowed
		hint                 string
	}{
		"a harmless one":                   {"'*'", "CI", "1", "", ""},
		"a dangerous one":                  {"'*'", "LD_PRELOAD", "/tmp/x.so", commands.Policy, "allow it by its full name under environment in policy.yaml"},
		"a dangerous one by its full name": {"'*', LD_PRELOAD", "LD_PRELOAD", "/tmp/x.so", "", ""},
		"a value that cannot be":           {"'*'", "CI", "a\x00b", commands.BadEnv, ""},
		"a name of ours":                   {"'*'", "SPAWNMESH_TASK", "x", commands.BadEnv, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules, err := policy.Parse([]byte("version: 1\nruntimes: [exec]\ncommands: [echo]\nenvironment: [" + tt.allowed + "]\n"))
			require.NoError(t, err)

			got := rules.Judge(&commands.Spawn{Task: "x", Runtime: commands.RuntimeExec, Argv: []string{"echo"}, Env: []commands.EnvVar{{Name: tt.name}}}, map[string]string{tt.name: tt.value})

			if tt.code == "" {
				require.Nil(t, got)
				return
			}
			require.NotNil(t, got)
			require.Equal(t, tt.code, got.Code, got.Why)
			require.Contains(t, got.Hint, tt.hint)
		})
	}
}

// Inputs of an order are taken up to what the policy says, and only by a spoke that fetches them.
func TestInputsOfAnOrderAreAllowedUpToALimit(t *testing.T) {
	t.Parallel()
	const rules = "version: 1\nruntimes: [exec]\ncommands: [make, \"true\"]\n"
	dir := t.TempDir()
	write := func(text string) { require.NoError(t, os.WriteFile(policy.File(dir), []byte(rules+text), 0o600)) }
	write("max_input_bytes: 1MiB\n")
	live, err := policy.Open(dir)
	require.NoError(t, err)
	order := func(sizes ...int64) *commands.Spawn {
		s := &commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"true"}}
		for i, size := range sizes {
			s.Inputs = append(s.Inputs, commands.Input{Kind: commands.InputTar, Blob: commands.Blob{Digest: fmt.Sprintf("sha256-%064d", i), Size: size}})
		}
		return s
	}
	require.NotContains(t, live.Now().Offers(), commands.InputsTaken, "nothing fetches them")
	require.Equal(t, commands.Policy, live.Now().Judge(order(1), nil).Code)

	live.Fetches()

	for range 2 { // also after the policy was read again
		require.Contains(t, live.Now().Offers(), commands.InputsTaken)
		require.Nil(t, live.Now().Judge(order(1<<20-1, 1), nil))
		r := live.Now().Judge(order(1<<20, 1), nil)
		require.Equal(t, commands.InputTooLarge, r.Code)
		require.Contains(t, r.Hint, "max_input_bytes")
		require.Contains(t, live.Now().Reach("/", order()).Words(), "files and standard input of an order: none; inputs, fetched from its hub: up to 1MiB together")
		require.NotEmpty(t, live.Now().Shell(live.Now().Commands[0]), "what makes a program run what it finds")
		_, err = live.Reload("")
		require.NoError(t, err)
	}
	write("max_input_bytes: 0\n")
	_, err = live.Reload("")
	require.NoError(t, err)
	require.NotContains(t, live.Now().Offers(), commands.InputsTaken)
	r := live.Now().Judge(order(0), nil)
	require.Equal(t, commands.Policy, r.Code)
	require.Contains(t, r.Hint, "max_input_bytes")
	require.Empty(t, live.Now().Shell(live.Now().Commands[0]))
	for _, bad := range []string{"-1", "much", "none", "-1MiB"} {
		_, err := policy.Parse([]byte(rules + "max_input_bytes: " + bad + "\n"))
		require.ErrorContains(t, err, "max_input_bytes \""+bad+"\" is not a size", bad)
	}
	_, err = policy.Parse([]byte(rules + "capabilities: [inputs]\n"))
	require.ErrorContains(t, err, "is offered by itself; remove it here, and write max_input_bytes")
}

// Files and standard input of an order are allowed by a word for them, and offered to hubs then.
func TestFilesOfAnOrderAreAllowedByName(t *testing.T) {
	t.Parallel()
	const rules = "version: 1\nruntimes: [exec]\ncommands: [\"*\"]\n"
	without, err := policy.Parse([]byte(rules))
	require.NoError(t, err)
	with, err := policy.Parse([]byte(rules + "inline_files: true\n"))
	require.NoError(t, err)
	require.NotContains(t, without.Offers(), commands.InlineFiles)
	require.Contains(t, with.Offers(), commands.InlineFiles)
	for _, s := range []commands.Spawn{{Files: []commands.File{{Path: "Makefile"}}}, {Stdin: true}} {
		s.Runtime, s.Argv, s.Capabilities = commands.RuntimeExec, []string{"sh"}, []string{commands.InlineFiles}
		r := without.Judge(&s, nil)
		require.NotNil(t, r)
		require.Equal(t, commands.Policy, r.Code)
		require.Contains(t, r.Hint, "inline_files: true")
		require.Nil(t, with.Judge(&s, nil))
		require.Contains(t, with.Reach("/", &s).Words(), "files and standard input of an order: any; inputs, fetched from its hub: none")
	}
	_, err = policy.Parse([]byte(rules + "capabilities: [inline-files]\n"))
	require.ErrorContains(t, err, "is offered by itself; remove it here, and write inline_files: true")
	for name, allows := range map[string]bool{"deny": false, "commands": false, "open": true} {
		p, err := policy.Parse([]byte(policy.Presets[name]))
		require.NoError(t, err)
		require.Equal(t, allows, p.InlineFiles, name)
	}
}
