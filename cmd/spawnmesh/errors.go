package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/federation/local"
	"github.com/spawnmesh/spawnmesh/signing"
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
	exitAwaiting    = 11
	exitTimedOut    = 124
	exitInterrupted = 130
)

// exitCode ends the program with a code after everything was said already.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// misuseError is a command line that cannot be meant.
type misuseError struct{ err error }

func (m misuseError) Error() string { return m.err.Error() }

func misuse(err error) error { return misuseError{err} }

func codeOf(err error) int {
	if _, ok := errors.AsType[misuseError](err); ok {
		return exitMisuse
	}
	if _, ok := errors.AsType[*signing.KeyFileError](err); ok {
		return exitMisuse
	}
	if _, ok := errors.AsType[*postgres.InUseError](err); ok {
		return exitConflict
	}
	if errors.Is(err, federation.ErrPin) || errors.Is(err, federation.ErrHandshake) || errors.Is(err, federation.ErrRefused) {
		return exitUntrusted
	}
	if errors.Is(err, federation.ErrUnavailable) {
		return exitUnreachable
	}
	if errors.Is(err, federation.ErrToken) {
		return exitMisuse
	}
	if strings.HasPrefix(err.Error(), "unknown command") || strings.HasPrefix(err.Error(), "accepts ") || strings.HasPrefix(err.Error(), "requires ") ||
		strings.HasPrefix(err.Error(), "required flag") {
		return exitMisuse
	}
	return exitOfCode(commands.CodeOf(err))
}

func exitOfCode(code commands.Code) int {
	switch code {
	case commands.Validation, commands.BadEnv, commands.Ambiguous:
		return exitMisuse
	case commands.NotFound, commands.UnknownTask:
		return exitNotFound
	case commands.Conflict, commands.Idempotency, commands.TaskConflict, commands.Tombstone:
		return exitConflict
	case signing.ConnState, signing.SigBad, signing.KeyRevoked, signing.KeyUnknown, signing.KeyWeak, signing.KeyDuplicate,
		local.Forbidden, "JOIN_REFUSED", "PIN_MISMATCH", "HANDSHAKE_BAD":
		return exitUntrusted
	case commands.Policy, commands.Grant, commands.BadPath:
		return exitRefused
	case commands.NoSpoke, commands.Capability:
		return exitNoSpoke
	case commands.Unreachable, commands.StoreDown:
		return exitUnreachable
	}
	return exitUnexpected
}

// printError says what went wrong: for people in two lines, with -o json as one
// object. Both go to standard error.
func (a *app) printError(err error) {
	code, hint := commands.CodeOf(err), ""
	if r, ok := errors.AsType[*commands.Refused](err); ok {
		hint = r.Hint
	}
	if _, ok := errors.AsType[misuseError](err); ok {
		code = commands.Validation
	}
	if hint == "" && errors.Is(err, federation.ErrPin) {
		hint = "ask the hub's operator for a new token; somebody may stand between you"
	}
	if a.json || a.output == "json" || a.output == "ndjson" {
		out := map[string]map[string]string{"error": {"code": string(code), "reason": string(code), "message": err.Error(), "hint": hint}}
		_ = json.NewEncoder(a.err).Encode(out)
		return
	}
	fmt.Fprintf(a.err, "spawnmesh: %s\n", printable(err.Error()))
	if hint != "" {
		fmt.Fprintf(a.err, "hint: %s\n", printable(hint))
	}
}
