package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spawnmesh/spawnmesh/commands"
)

// An answer is the standard output of one call. It remembers the first error, so
// that nobody who writes to it has to look: [run] does, at the end.
type answer struct {
	to  io.Writer
	err error
}

// Write passes p on, until it could not be written once.
func (a *answer) Write(p []byte) (n int, err error) {
	if a.err == nil {
		n, a.err = a.to.Write(p)
	}
	return n, a.err
}

// did notes what this call has done and how to learn or undo it, for the case
// that its answer cannot be written.
func (a *app) did(format string, args ...any) { a.effect = fmt.Sprintf(format, args...) }

// heard returns how a call ended: as err says, unless all was well and its answer
// was lost.
func (a *app) heard(answer *answer, err error) error {
	_, said := errors.AsType[exitCode](err)
	if answer.err == nil || err != nil && !said && !errors.Is(err, answer.err) {
		return err
	}
	return &commands.Refused{Code: commands.Internal, Why: "the answer could not be written to standard output", Err: answer.err, Hint: a.effect}
}
