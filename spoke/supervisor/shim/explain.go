package shim

import (
	"errors"
	"os"
	"strconv"
	"syscall"

	"github.com/spawnmesh/spawnmesh/spoke/hostfault"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/confine"
)

// explain finds out which of the things an errno can mean it was.
func explain(err error, spec attempt.Spec) *attempt.StartError {
	failed, ok := errors.AsType[*confine.Failure](err)
	if ok && failed.Step == confine.StepDir && !hostfault.Is(err) {
		return &attempt.StartError{Reason: attempt.BadDirectory, Path: spec.Dir, Text: "the working directory cannot be entered: " + errnoText(err) + asWho(spec)}
	}
	if program := spec.Argv[0]; !ok || failed.Step == confine.StepExec {
		return explainExec(err, program, spec)
	}
	if hostfault.NoRoom(err) {
		return &attempt.StartError{Reason: attempt.NoResources, Path: spec.Argv[0], Text: failed.Error() + "; this host has no room for another process now"}
	}
	return &attempt.StartError{Reason: attempt.HostFault, Path: spec.Argv[0], Text: failed.Error() + asWho(spec)}
}

// asWho tells for whom a path has to be open, where that is not the spoke's own user.
func asWho(spec attempt.Spec) string {
	who := ""
	if user := spec.Confine.User.ID; user != 0 {
		who = "; the agent runs as user " + strconv.FormatInt(user, 10)
	}
	if spec.Confine.Landlock {
		who += "; it reaches system directories, its own, and read_paths and write_paths of the policy"
	}
	return who
}

func explainExec(err error, program string, spec attempt.Spec) *attempt.StartError {
	info, statErr := os.Stat(program)
	text := errnoText(err)
	switch {
	case errors.Is(err, syscall.ENOENT) && statErr != nil:
		return &attempt.StartError{Reason: attempt.NotFound, Path: program, Text: text + "; install it on this host or correct the command"}
	case errors.Is(err, syscall.ENOENT):
		return &attempt.StartError{Reason: attempt.BadShebang, Path: program, Text: text + ": the interpreter its first line or its header names is not installed"}
	case errors.Is(err, syscall.ELOOP):
		return &attempt.StartError{Reason: attempt.ShebangLoop, Path: program, Text: text + ": follow its links, or the interpreters of the script"}
	case errors.Is(err, syscall.EACCES) && statErr == nil && info.IsDir():
		return &attempt.StartError{Reason: attempt.IsDirectory, Path: program, Text: text + ": it is a directory"}
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return &attempt.StartError{Reason: attempt.NotExecutable, Path: program, Text: text + "; make it executable for the user that the agent runs as" + asWho(spec)}
	case errors.Is(err, syscall.ENOEXEC):
		return &attempt.StartError{Reason: attempt.BadFormat, Path: program, Text: text + "; a script needs a first line such as #!/bin/sh"}
	case errors.Is(err, syscall.E2BIG):
		return &attempt.StartError{Reason: attempt.TooLong, Path: program, Text: text + "; pass large inputs in a file"}
	case hostfault.NoRoom(err):
		return &attempt.StartError{Reason: attempt.NoResources, Path: program, Text: text + "; this host has no room for another process now"}
	}
	return &attempt.StartError{Reason: attempt.HostFault, Path: program, Text: text}
}

// errnoText is the system's own wording, without the call it came from.
func errnoText(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	return err.Error()
}
