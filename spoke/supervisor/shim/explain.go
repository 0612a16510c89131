package shim

import (
	"errors"
	"os"
	"syscall"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
)

// explain finds out which of the things an errno can mean it was.
func explain(err error, spec attempt.Spec) *attempt.StartError {
	program := spec.Argv[0]
	if info, statErr := os.Stat(spec.Dir); statErr != nil || !info.IsDir() || syscall.Access(spec.Dir, 1) != nil {
		if statErr == nil {
			statErr = err
		}
		return &attempt.StartError{Reason: attempt.BadDirectory, Path: spec.Dir, Text: "the working directory cannot be entered: " + errnoText(statErr)}
	}
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
		return &attempt.StartError{Reason: attempt.NotExecutable, Path: program, Text: text + "; make it executable for the user the spoke runs as"}
	case errors.Is(err, syscall.ENOEXEC):
		return &attempt.StartError{Reason: attempt.BadFormat, Path: program, Text: text + "; a script needs a first line such as #!/bin/sh"}
	case errors.Is(err, syscall.E2BIG):
		return &attempt.StartError{Reason: attempt.TooLong, Path: program, Text: text + "; pass large inputs in a file"}
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
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
