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

var kinds = []kind{
	{"it runs what its arguments say, or the file that they name", "sh bash dash zsh ksh mksh ash fish csh tcsh rbash busybox toybox pwsh " +
		"python pypy ipython node nodejs deno bun perl ruby php lua luajit tclsh wish expect gdb awk gawk mawk nawk sed ed ex osascript guile R Rscript julia java jshell groovy"},
	{"it starts the program that its arguments name, or its input", "env sudo doas su runuser xargs nice ionice nohup setsid timeout stdbuf time chroot unshare nsenter setpriv capsh flock watch strace ltrace " +
		"parallel script at batch systemd-run machinectl run0 pkexec exec command entr direnv tmux screen"},
	{"an option or a file of its names programs to start", "tar rsync scp sftp ssh curl wget zip unzip 7z man less more vi vim nvim view emacs nano pico mail mutt socat nc ncat openssl sqlite3 psql mysql crontab hg"},
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

// Shell says why an entry is as good as a shell under this policy: with files, standard input and inputs of the order, whole
// command lines are that run what they find or read.
func (p *Policy) Shell(c Command) string {
	why, rule, brings := c.Shell(), "inline_files is true", "files and standard input"
	if !p.InlineFiles {
		rule, brings = "max_input_bytes is "+string(p.MaxInputBytes), "files"
	}
	if why != "" || !p.InlineFiles && p.InputLimit() == 0 {
		return why
	}
	brings = ", and an order can bring " + brings + ": " + rule
	program := c.Run.word(0)
	switch name := nameOf(program); {
	case !filepath.IsAbs(program) && strings.Contains(program, "/"):
		return "an order can bring the program itself: " + rule
	case name == "git":
		return "it starts programs that .git/config in its directory names" + brings
	case kindOf(name) >= 0 && !c.Run.hostScript(name):
		return kinds[kindOf(name)].why + brings
	}
	return ""
}

// nameOf is the name of a program without directory and version: python3.12 is python.
func nameOf(program string) string {
	name := filepath.Base(program)
	if short := strings.TrimRight(name, "0123456789.-"); kindOf(name) < 0 && short != "" {
		return short
	}
	return name
}

// kindOf is the index of a program's kind, -1 where it is of none.
func kindOf(name string) int {
	return slices.IndexFunc(kinds, func(k kind) bool { return slices.Contains(strings.Fields(k.names), name) })
}

// More of the first kind do not stop at the script that is named: they read standard input, or a file of their
// directory, or start what the first word names.
const readsMore = "busybox toybox ipython bun gdb sed ed ex R Rscript jshell"

// hostScript reports whether a script of the host's choice is named first: it has all that follows as its arguments.
func (p Pattern) hostScript(name string) bool {
	if kindOf(name) != 0 || len(p) < 2 || !filepath.IsAbs(p[1]) || slices.Contains(strings.Fields(readsMore), name) {
		return false
	}
	top, _, _ := strings.Cut(filepath.Clean(p[1])[1:], "/")
	return top != "dev" && top != "proc" // there standard input has names
}

func (p Pattern) kindShell(name string) string {
	i := kindOf(name)
	if i < 0 || p.hostScript(name) {
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
