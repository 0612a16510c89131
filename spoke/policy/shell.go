package policy

import (
	"path/filepath"
	"slices"
	"strings"
)

// A kind of program runs whatever an argument of its says.
type kind struct {
	why   string
	names string
}

// Those of kinds that do so without being told by an argument.
const runsText, builds = 0, 3

var kinds = []kind{
	{"it runs what its arguments say, or the file that they name", "sh bash dash zsh ksh mksh ash fish csh tcsh rbash busybox toybox pwsh " +
		"python pypy ipython node nodejs deno bun perl ruby php lua luajit tclsh wish expect gdb awk gawk mawk nawk sed ed ex osascript guile R Rscript julia java jshell groovy"},
	{"it starts the program that its arguments name", "env sudo doas su runuser xargs nice ionice nohup setsid timeout stdbuf time chroot unshare nsenter setpriv capsh flock watch strace ltrace " +
		"parallel script at batch systemd-run machinectl run0 pkexec exec command entr direnv tmux screen"},
	{"an option or a file of its names programs to start", "tar rsync scp sftp ssh curl wget zip unzip 7z man less more vi vim nvim view emacs nano pico mail mutt socat nc ncat openssl sqlite3 psql mysql crontab"},
	{"it runs commands of the files that it builds or tests, and of its arguments", "make gmake ninja cmake ant mvn gradle rake go cargo rustc gcc g++ cc c++ clang tsc npm npx yarn pnpm pip pipx uv poetry tox nox pytest jest bundle gem composer mix dotnet"},
	{"a container or machine that its arguments describe can be given every file of the host", "docker podman nerdctl ctr crictl kubectl lxc incus virsh qemu-system-x86_64 bwrap systemctl"},
}

// Shell says why the entry is as good as a shell to who gives orders, "" when nothing
// is known that makes it one.
func (c Command) Shell() string {
	switch {
	case c.Any():
		return "every command may run, a shell among them"
	case !c.Run.wild(1):
		return ""
	}
	switch name := nameOf(c.Run.word(0)); name {
	case "git":
		return c.Run.gitShell()
	case "find", "fd", "fdfind":
		return c.Run.findShell()
	default:
		return c.Run.kindShell(name)
	}
}

// Shell says why an entry is as good as a shell under this policy: with files of the order, whole command lines are
// that run what they find or read.
func (p *Policy) Shell(c Command) string {
	if why := c.Shell(); why != "" || !p.InlineFiles {
		return why
	}
	program := c.Run.word(0)
	if !filepath.IsAbs(program) && strings.Contains(program, "/") {
		return "an order can bring the program itself: inline_files is true"
	}
	if len(c.Run) > 1 && filepath.IsAbs(c.Run[1]) {
		return "" // a script of the host's choice
	}
	for _, k := range []kind{kinds[runsText], kinds[builds]} {
		if slices.Contains(strings.Fields(k.names), nameOf(program)) {
			return k.why + ", and an order can bring files and standard input: inline_files is true"
		}
	}
	return ""
}

// nameOf is the name of a program without directory and version: python3.12 is python.
func nameOf(program string) string {
	name := filepath.Base(program)
	if short := strings.TrimRight(name, "0123456789.-"); short != "" && short != "7z" {
		return short
	}
	return name
}

func (p Pattern) kindShell(name string) string {
	i := slices.IndexFunc(kinds, func(k kind) bool { return slices.Contains(strings.Fields(k.names), name) })
	if i < 0 {
		return ""
	}
	// A script of the host's choice, named first, has all that follows as its arguments.
	if i == 0 && filepath.IsAbs(p[1]) {
		return ""
	}
	return kinds[i].why
}

// gitShell: git starts programs that options name, and -c sets any option.
func (p Pattern) gitShell() string {
	options := slices.ContainsFunc(p[1:], func(w string) bool { return w == "-c" || strings.HasPrefix(w, "--config-env") })
	end := slices.Index(p, "--")
	switch {
	case options:
		return "-c sets options that name programs to start, such as core.pager and core.sshCommand"
	case end < 0 || p[:end].wild(1):
		return "an argument may be an option that names a program to start, such as --upload-pack; put -- before the wildcard"
	}
	return ""
}

// findShell: find starts programs that its expression names.
func (p Pattern) findShell() string {
	starts := func(w string) bool {
		return slices.Contains([]string{"-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"}, w)
	}
	stars := 0
	for _, w := range p {
		if w == one {
			stars++
		}
	}
	if p.open() || slices.ContainsFunc(p, starts) || stars > 2 {
		return "-exec starts the program that it names"
	}
	return ""
}
