package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/join"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/hostfile"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/store/postgres"
)

// Exit codes, as product documentation promises them.
const (
	exitUnexpected  = 1
	exitMisuse      = 2
	exitNotFound    = 3
	exitConflict    = 4
	exitUntrusted   = 5
	exitRefused     = 6
	exitNoSpoke     = 7
	exitUnreachable = 8
	exitFailed      = 9
	exitCancelled   = 10
	exitNoAnswer    = 11
	exitNoResult    = 12
	exitTimedOut    = 124
	exitInterrupted = 130
)

// Codes of what goes wrong on this side of the command line.
const (
	joinRefused  commands.Code = "JOIN_REFUSED"
	pinMismatch  commands.Code = "PIN_MISMATCH"
	handshakeBad commands.Code = "HANDSHAKE_BAD"
	keyFile      commands.Code = "KEY_FILE"
	hostFile     commands.Code = "HOST_FILE"
)

// exitCode ends the program with a code after everything was said already.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// misuse is a command line, or a file it names, that cannot be meant.
func misuse(format string, args ...any) *commands.Refused {
	return commands.Refuse(commands.Validation, format, args...)
}

// refusal puts every error into one shape: the code that programs read, the
// words that people read, and what to do next.
func refusal(err error) *commands.Refused {
	known := func(code commands.Code, hint string) *commands.Refused {
		return &commands.Refused{Code: code, Why: err.Error(), Hint: hint}
	}
	r, said := errors.AsType[*commands.Refused](err)
	_, unsafeKey := errors.AsType[*signing.KeyFileError](err)
	_, unsafe := errors.AsType[*hostfile.UnsafeError](err)
	_, inUse := errors.AsType[*postgres.InUseError](err)
	_, noPostgres := errors.AsType[*postgres.NotFoundError](err)
	switch {
	case said:
		return &commands.Refused{Code: r.Code, Why: err.Error(), Hint: r.Hint, Run: r.Run, MayBeDone: r.MayBeDone}
	case unsafeKey:
		return known(keyFile, "")
	case unsafe:
		return known(hostFile, "")
	case inUse:
		return known(commands.Conflict, "")
	case noPostgres:
		return known(commands.StoreDown, "")
	case errors.Is(err, spoke.ErrNoHub):
		return known(commands.Conflict, "join one with the token that its operator made").Running("spoke", "join", "--token-file", "FILE")
	case errors.Is(err, join.ErrToken):
		return known(commands.Validation, "")
	case errors.Is(err, transport.ErrPin):
		return known(pinMismatch, "ask the hub's operator for a new token; somebody may stand between you")
	case errors.Is(err, join.ErrHandshake):
		return known(handshakeBad, "ask the hub's operator for a new token; somebody may stand between you")
	case errors.Is(err, transport.ErrRefused):
		return known(joinRefused, "ask the hub's operator: its audit has the reason")
	case errors.Is(err, transport.ErrUnavailable):
		return known(commands.Unreachable, "is the hub running, and can this host reach its address?")
	case errors.Is(err, context.DeadlineExceeded):
		return known(commands.Unreachable, "")
	case errors.Is(err, fs.ErrPermission):
		return known(commands.Forbidden, "run this as the user that it belongs to, or name another --data-dir")
	}
	return known(commands.CodeOf(err), "")
}

func exitOfCode(code commands.Code) int {
	switch code {
	case commands.Validation, commands.BadEnv, commands.Ambiguous, commands.MethodNotAllowed, commands.UnsupportedMedia,
		commands.PayloadTooLarge, commands.RequestTimeout, commands.Misdirected, keyFile, hostFile:
		return exitMisuse
	case commands.NotFound, commands.UnknownTask, commands.ReUnknown, commands.InputMissing:
		return exitNotFound
	case commands.Conflict, commands.Idempotency, commands.TaskConflict, commands.Tombstone, commands.StaleAttempt, commands.Cycle,
		commands.FenceStale, commands.ResultClash, commands.Offset, commands.Resync:
		return exitConflict
	case signing.ConnState, signing.SigBad, signing.KeyRevoked, signing.KeyUnknown, signing.KeyWeak, signing.KeyDuplicate,
		commands.Forbidden, control.CertificateUnknown, commands.Unauthenticated, joinRefused, pinMismatch, handshakeBad,
		commands.AuditBroken, commands.GrantMalformed, commands.GrantExpired, commands.GrantKeyUnknown, commands.GrantUnknown, commands.GrantMismatch:
		return exitUntrusted
	case commands.Policy, commands.Grant, commands.BadPath, commands.InputTooLarge, commands.TooMany, commands.OverBudget, commands.LaneClosed, commands.FrozenThere, commands.Rate, commands.Full, commands.TooManyRequests:
		return exitRefused
	case commands.NoSpoke, commands.Capability:
		return exitNoSpoke
	case commands.Unreachable, commands.StoreDown, commands.NotReady, commands.StreamLoss:
		return exitUnreachable
	case commands.NoAnswer:
		return exitNoAnswer
	case commands.NoResult:
		return exitNoResult
	case control.Interrupted:
		return exitInterrupted
	}
	return exitUnexpected
}

// hint is what to do next, with the command line as it can be pasted.
func (a *app) hint(r *commands.Refused) string {
	if len(r.Run) == 0 {
		return r.Hint
	}
	return r.Hint + ": " + a.line(r.Run...)
}

// printError says what went wrong and returns the exit code that says it too:
// for people in two lines, with -o json as one object, both on standard error.
func (a *app) printError(err error) int {
	r := refusal(err)
	hint := a.hint(r)
	if a.wantsJSON() {
		_ = encode(a.err, map[string]any{"error": a.errorView(err)}, "")
		return exitOfCode(r.Code)
	}
	fmt.Fprintf(a.err, "spawnmesh: %s\n", printable(r.Why))
	if hint != "" {
		fmt.Fprintf(a.err, "           %s\n", printable(hint))
	}
	return exitOfCode(r.Code)
}

// An errorView is an error as a program reads it.
type errorView struct {
	Code      commands.Code `json:"code"`
	Reason    commands.Code `json:"reason"` // the code again, as results of agents have it
	Message   string        `json:"message"`
	Hint      string        `json:"hint"`
	MayBeDone bool          `json:"may_be_done,omitempty"` // else nothing was
}

func (a *app) errorView(err error) errorView {
	r := refusal(err)
	return errorView{r.Code, r.Code, r.Why, a.hint(r), r.MayBeDone}
}
