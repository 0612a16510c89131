// Package runtime turns a task into something to run.
//
// It decides nothing about processes: it checks what was asked for, finds the
// program and builds the environment, and hands a [supervisor.Spec] on. It
// reads the file system and changes nothing, so a call may be repeated and
// made from any goroutine. Between the check and the start the file system may
// change; the supervisor then reports what it found.
//
// Values of environment variables never appear in an error.
package runtime

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/spoke/hostfault"
	"github.com/spawnmesh/spawnmesh/spoke/place"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// The limits of a command line.
const (
	maxArgs     = 4096
	maxArgBytes = 128 << 10 // of all arguments together
)

// An Exec is a command to run as an agent, as the task asks for it.
type Exec struct {
	// Argv is the program and its arguments; no shell reads them. A program
	// without slash is looked for in Path, one with a slash that is not
	// absolute is relative to Dir.
	Argv []string
	// Dir is the working directory, absolute.
	Dir string
	// Home is the agent's HOME, unless the host sets another. "" = Dir.
	Home string
	// Path is the list of directories to find programs in, separated by
	// colons; the agent gets it as PATH. Entries that are not absolute are
	// not searched.
	Path string
	// Env holds the variables that the task asks for, after the allow-list was
	// applied.
	Env map[string]string
	// Host holds the variables that the host sets. They win over Env, over HOME
	// and over the PATH that the agent gets, in whatever case those are spelt.
	Host map[string]string
	// IDs holds the variables the agent knows itself by. Their names begin
	// with SPAWNMESH_, which no name in Env may.
	IDs map[string]string
	// Trace is the agent's TRACEPARENT, unless Env or Host sets one. "" = none.
	Trace string
	// Allowed lists the dangerous names that the local policy lets Env set,
	// such as PYTHONPATH, spelt as there.
	Allowed []string
	// Secrets are values that are taken out of the agent's output.
	Secrets []string
	// TempDir is the agent's TMPDIR. "" = Dir.
	TempDir string
}

// A Reason classifies a refusal. Reasons are stored, so none is ever renamed.
type Reason string

// The reasons of a [Refusal].
const (
	BadArgv  Reason = "bad_argv"      // the command line breaks a limit
	BadInput Reason = "bad_input"     // what the order brings cannot be used
	BadEnv   Reason = "bad_env"       // a variable cannot be set
	Policy   Reason = "policy_denied" // a variable may not be set on this spoke
)

// A Refusal says why a command will not be run as it was asked for. Asking
// again does not help.
type Refusal struct {
	Reason Reason
	Text   string // names the argument or variable, and never shows its value
}

func (r *Refusal) Error() string { return r.Text }

func refuse(reason Reason, format string, args ...any) error {
	return &Refusal{reason, fmt.Sprintf(format, args...)}
}

// Spec checks the command and returns what a supervisor can start; marker,
// lease and limits are the caller's to add. The error is a [*Refusal], or a
// [*supervisor.StartError] when the program will not do.
func (e Exec) Spec() (supervisor.Spec, error) {
	if err := checkArgv(e.Argv); err != nil {
		return supervisor.Spec{}, err
	}
	env, err := e.environment()
	if err != nil {
		return supervisor.Spec{}, err
	}
	program, err := e.Program()
	if err != nil {
		return supervisor.Spec{}, err
	}
	argv := append([]string{program}, e.Argv[1:]...)
	return supervisor.Spec{Argv: argv, Env: env, Secrets: Forms(e.Secrets), Dir: e.Dir}, nil
}

func checkArgv(argv []string) error {
	if len(argv) == 0 || argv[0] == "" {
		return refuse(BadArgv, "the command is empty; name the program to run")
	}
	if len(argv) > maxArgs {
		return refuse(BadArgv, "the command has %d arguments, the limit is %d", len(argv), maxArgs)
	}
	size := 0
	for i, arg := range argv {
		switch {
		case strings.ContainsRune(arg, 0):
			return refuse(BadArgv, "argument %d holds a NUL", i)
		case !utf8.ValidString(arg):
			return refuse(BadArgv, "argument %d is not UTF-8", i)
		}
		size += len(arg)
	}
	if size > maxArgBytes {
		return refuse(BadArgv, "the command is %d bytes long, the limit is %d; pass large inputs in a file", size, maxArgBytes)
	}
	return nil
}

// OpenDir opens the working directory of an agent, once for all that is done with it: for Spec, which does not look at it,
// Dir is a name. The error is a [*supervisor.StartError].
func OpenDir(dir string) (*place.Place, error) { return openDir(dir, place.OpenDir) }

// OpenDirect is OpenDir through no symbolic link: what its error says is of that path, and not of where a link leads.
func OpenDirect(dir string) (*place.Place, error) { return openDir(dir, place.OpenDirect) }

func openDir(dir string, open func(string) (*place.Place, error)) (*place.Place, error) {
	const cannot = "the working directory cannot be entered: "
	if !filepath.IsAbs(dir) {
		return nil, &supervisor.StartError{Reason: supervisor.BadDirectory, Path: dir, Text: cannot + "it is not an absolute path"}
	}
	p, err := open(dir)
	if err != nil {
		return nil, unopened(err, supervisor.BadDirectory, dir, cannot)
	}
	return p, nil
}

// OpenProgram opens a program by its whole path. The error is a [*supervisor.StartError].
func OpenProgram(path string) (*place.Place, error) {
	p, err := place.Open(path)
	if err != nil {
		return nil, unopened(err, supervisor.NotFound, path, "the program cannot be opened: ")
	}
	return p, nil
}

// OfHost reports whether err, of [OpenDir] or [OpenProgram], is a fault of this host, and whether that tells nothing of the path.
func OfHost(err error) (fault, everywhere bool) {
	start, ok := errors.AsType[*supervisor.StartError](err)
	everywhere = ok && start.Reason == supervisor.NoResources
	return everywhere || ok && start.Reason == supervisor.HostFault, everywhere
}

// unopened is why what is at a path could not be opened: reason, where that is no fault of the host.
func unopened(err error, reason supervisor.Reason, path, text string) *supervisor.StartError {
	switch {
	case hostfault.NoRoom(err):
		reason = supervisor.NoResources
	case place.Fault(err):
		reason = supervisor.HostFault
	}
	return &supervisor.StartError{Reason: reason, Path: path, Text: text + plainText(err)}
}

// NotFollowed is why a path of a program cannot be followed to where it leads.
func NotFollowed(path string, err error) error {
	return unopened(err, supervisor.NotFound, path, "the program cannot be looked for: ")
}

// Program returns the absolute path of what Argv[0] names.
func (e Exec) Program() (string, error) {
	name := e.Argv[0]
	if !strings.Contains(name, "/") {
		found, _, err := LookUp(name, e.Path)
		return found, err
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(e.Dir, name)
	}
	if err := executable(name); err != nil {
		return "", err
	}
	return name, nil
}

// Startable returns the program that Argv names, as an absolute path where it is known, and why
// it cannot be started as this host is now; "" = it can.
func (e Exec) Startable() (program, why string) {
	if len(e.Argv) == 0 {
		return "", "it is not allowed"
	}
	name := e.Argv[0]
	if e.Dir == "" && strings.Contains(name, "/") && !filepath.IsAbs(name) {
		return name, "it is relative to the directory that the agent runs in, and a fresh one is empty"
	}
	found, err := e.Program()
	start, ok := errors.AsType[*supervisor.StartError](err)
	switch {
	case !ok:
		return found, ""
	case strings.Contains(name, "/"):
		return name, start.Text
	}
	return name, start.Text + "; PATH is " + e.Path
}

// LookUp searches the absolute directories of path for a program. Where there is none, a fault of this host that was met on the way is
// what the error is about, or else a file that is there and cannot be executed. before is such a fault where a later directory has one.
func LookUp(name, path string) (found string, before, err error) {
	var unfit error
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue // it would depend on where we are
		}
		candidate := filepath.Join(dir, name)
		err := executable(candidate)
		if err == nil {
			return candidate, before, nil
		}
		start, _ := errors.AsType[*supervisor.StartError](err)
		if fault, _ := OfHost(err); fault {
			before = cmp.Or(before, err)
		} else if start != nil && start.Reason == supervisor.NotExecutable {
			unfit = cmp.Or(unfit, err)
		}
	}
	return "", nil, cmp.Or(before, unfit, error(&supervisor.StartError{
		Reason: supervisor.NotFound, Path: name, Text: "it is in none of the directories of PATH; install it on this host or correct the command",
	}))
}

// stat is os.Stat; tests have a disk that fails.
var stat = os.Stat

// executable reports what keeps the kernel from executing the file, as far as
// that can be seen without trying.
func executable(name string) error {
	fail := func(reason supervisor.Reason, text string) error {
		return &supervisor.StartError{Reason: reason, Path: name, Text: text}
	}
	info, err := stat(name)
	switch {
	case err != nil && place.Fault(err):
		return NotFollowed(name, err)
	case errors.Is(err, fs.ErrPermission):
		return fail(supervisor.NotExecutable, plainText(err))
	case errors.Is(err, unix.ELOOP):
		return fail(supervisor.ShebangLoop, plainText(err))
	case err != nil:
		return fail(supervisor.NotFound, plainText(err)+"; install it on this host or correct the command")
	case info.IsDir():
		return fail(supervisor.IsDirectory, "it is a directory")
	case !info.Mode().IsRegular():
		return fail(supervisor.NotExecutable, "it is not a regular file")
	}
	err = unix.Faccessat(unix.AT_FDCWD, name, unix.X_OK, unix.AT_EACCESS)
	switch {
	case err != nil && place.Fault(err):
		return NotFollowed(name, err)
	case err != nil:
		return fail(supervisor.NotExecutable, plainText(err)+"; make it executable for the user the spoke runs as")
	}
	return nil
}

// plainText is the system's own wording, without the call and the path.
func plainText(err error) string {
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return errno.Error()
	}
	if at, ok := errors.AsType[*os.PathError](err); ok { // of what no errno says
		return at.Err.Error()
	}
	return err.Error()
}
