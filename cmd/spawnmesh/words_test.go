package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/join"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/hostfile"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/store/postgres"
)

// typed runs a command line in this process, with no environment.
func typed(t *testing.T, args ...string) said {
	t.Helper()
	return typedWith(t.Context(), nil, args...)
}

func typedWith(ctx context.Context, env map[string]string, args ...string) said {
	var out, errOut bytes.Buffer
	code := run(ctx, &app{in: strings.NewReader(""), out: &out, err: &errOut, getenv: func(name string) string { return env[name] }}, args)
	return said{out.String(), hurried(errOut.String()), code}
}

// everyCommand calls each with every command and how it is typed.
func everyCommand(each func(c *cobra.Command, path []string)) {
	root := (&app{out: io.Discard, err: io.Discard}).root()
	var walk func(c *cobra.Command, path []string)
	walk = func(c *cobra.Command, path []string) {
		each(c, path)
		for _, sub := range c.Commands() {
			walk(sub, append(path[:len(path):len(path)], sub.Name()))
		}
	}
	walk(root, nil)
}

func TestEveryCommandExplainsItself(t *testing.T) {
	t.Parallel()
	count := 0
	everyCommand(func(c *cobra.Command, path []string) {
		count++
		name := c.CommandPath()
		require.NotEmpty(t, c.Short, name)
		require.True(t, unicode.IsUpper(rune(c.Short[0])), name)
		require.NotRegexp(t, `\.$`, c.Short, name)
		for _, args := range [][]string{append(path[:len(path):len(path)], "--help"), append([]string{"help"}, path...)} {
			s := typed(t, args...)
			require.Zero(t, s.code, name)
			require.Empty(t, s.err, name)
			require.NotRegexp(t, `[ \t]\n`, s.out, name)
			if len(path) > 0 && path[0] == "completion" {
				continue // cobra's words
			}
			for line := range strings.Lines(s.out) {
				require.LessOrEqual(t, len(line), 86, "%s: %q", name, line)
				require.NotContains(t, line, "stringArray", name)
			}
		}
	})
	require.Greater(t, count, 25)
}

// Help is broken where it is shown: the usage of a flag has no line of its own, each flag with a value names it, and a paragraph
// has no line that ends early.
func TestHelpHasNoBrokenLines(t *testing.T) {
	t.Parallel()
	everyCommand(func(c *cobra.Command, path []string) {
		if len(path) > 0 && path[0] == "completion" {
			return // cobra's words
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			name, usage := pflag.UnquoteUsage(f)
			assert.NotContains(t, usage, "\n", "%s --%s", c.CommandPath(), f.Name)
			assert.NotContains(t, []string{"string", "strings", "int", "int64", "stringArray"}, name, "%s --%s", c.CommandPath(), f.Name)
		})
		lines := strings.Split(c.Long, "\n")
		for i, line := range lines[:max(len(lines)-1, 0)] {
			if next := lines[i+1]; line != "" && next != "" && line[0] != ' ' && next[0] != ' ' {
				word, _, _ := strings.Cut(next, " ")
				assert.Greater(t, len(line)+1+len(word), 60, "%s: %q ends early", c.CommandPath(), line)
			}
		}
	})
}

// What is nobody's name is misuse wherever a name is taken: it would be another path of a request.
func TestANameIsNoPath(t *testing.T) {
	t.Parallel()
	var take []string
	everyCommand(func(c *cobra.Command, path []string) {
		line := strings.Join(path, " ")
		wants := strings.TrimPrefix(c.Use, c.Name()+" ")
		if !strings.HasPrefix(wants, "ID") && !strings.HasPrefix(wants, "NAME") || strings.Contains(wants, " ") {
			return
		}
		take = append(take, line)
		for _, name := range []string{"", ".", ".."} {
			s := typed(t, append(slices.Clone(path), name)...)
			require.Equal(t, exitMisuse, s.code, "%s %q: %s", line, name, s.err)
			require.Contains(t, s.err, fmt.Sprintf("%s takes %s, and %q is none\n           see: spawnmesh %s --help", line, wants, name, line))
		}
	})
	require.Subset(t, take, []string{"status", "kill", "logs", "why", "connections show", "connections suspend", "connections resume", "connections revoke",
		"connections grant", "connections resync", "invite revoke"})
}

// A command line that cannot be meant ends with 2 and says what would be right:
// to a program as one object, and never with anything on standard output.
func TestMisuse(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ line, says, hint string }{
		"no such command":        {"spwan", `there is no command "spwan"`, "did you mean: spawnmesh spawn"},
		"one with flags":         {"launch --spoke x", `there is no command "launch"`, "see: spawnmesh --help"},
		"an alias":               {"connn list", `there is no command "connn"`, "did you mean: spawnmesh conn"},
		"another word for one":   {"workers", `there is no command "workers"`, "did you mean: spawnmesh spokes"},
		"two that are as near":   {"spok", `there is no command "spok"`, "did you mean: spawnmesh spoke, or: spawnmesh spokes"},
		"the beginning of one":   {"doc", `there is no command "doc"`, "did you mean: spawnmesh doctor"},
		"a flag":                 {"agents --sate running", "agents has no flag --sate", "did you mean: --state"},
		"a flag of all":          {"agents --jsn", "agents has no flag --jsn", "did you mean: --json"},
		"none of a group":        {"connections", "connections needs a command: grant, list, resume, resync, revoke, show, suspend", "see: spawnmesh connections --help"},
		"no such one of a group": {"spoke policy tset", `there is no command "spoke policy tset"`, "did you mean: spawnmesh spoke policy test"},
		"no such help":           {"help nosuch", `there is no command "nosuch"`, "see: spawnmesh --help"},
		"no such help below":     {"help spoke nosuch", `there is no command "spoke nosuch"`, "see: spawnmesh spoke --help"},
		"no such shell":          {"completion tcsh", `there is no command "completion tcsh"`, "did you mean: spawnmesh completion bash"},
		"no such flag":           {"agents --long", "agents has no flag --long", "see: spawnmesh agents --help"},
		"no such state":          {"agents --state gone", `"gone" is not a state of an agent`, "the states are: queued, claimed, running, awaiting_input, paused"},
		"no such short flag":     {"agents -q", "agents has no flag -q", "see: spawnmesh agents --help"},
		"a flag without value":   {"agents --limit", "--limit needs a value", "see: spawnmesh agents --help"},
		"a short one without":    {"agents -o", "-o needs a value", "see: spawnmesh agents --help"},
		"a number that is none":  {"agents --limit x", `--limit: "x" is not a whole number`, "see: spawnmesh agents --help"},
		"a time that is none":    {"spawn --timeout soon -- true", `--timeout: "soon" is not a duration such as 90s, 15m, 2h or 7d`, "see: spawnmesh spawn --help"},
		"a truth that is none":   {"spoke policy init --force=perhaps", `--force: "perhaps" is neither true nor false`, "see: spawnmesh spoke policy init --help"},
		"no argument":            {"status", "status takes ID and got none", "see: spawnmesh status --help"},
		"one too many":           {"status a b", `status takes ID and got "a b"`, "see: spawnmesh status --help"},
		"none wanted":            {"agents now", `agents takes no arguments and got "now"`, "see: spawnmesh agents --help"},
		"none of several":        {"kill --reason x", "no agent is named", "name some by their ids, or by --spoke NAME, -l SELECTOR or --all"},
		"an unknown output":      {"agents -o yaml", `output "yaml" is not one of table, wide, json, ndjson, name`, ""},
		"no command to test":     {"spoke policy test", "no command given", "put it after --, as in: spawnmesh --data-dir DIR spoke policy test -- echo hi"},
		"an unknown preset":      {"spoke policy init --preset wide", `preset "wide" is not one of deny, commands, open`, ""},
		"no text":                {"keys revoke current --reason cl\xe9", "the value of --reason is not UTF-8", "type it in a terminal whose text is UTF-8"},
		"no text behind a =":     {"spawn --title=cl\xe9 -- true", "the value of --title is not UTF-8", ""},
		"no text as an argument": {"connections revoke cl\xe9 --reason x", `the argument "cl\xe9" is not UTF-8`, ""},
		"a wait that is none":    {"spawn --wait-timeout 5s -- true", "--wait-timeout ends a wait, and nothing waits here", "add --wait or --follow"},
		"a hub for a worker":     {"worker show --context lab", "--context names a hub, and the worker commands ask the spoke that runs this agent", "leave out --context"},
		"a worker of no context": {"worker show --context=", "--context is empty", ""},
		"no slots":               {"spoke run --slots 0", "--slots is from 1 to 10000", ""},
		"a lease of no time":     {"spoke run --lease 10ms", "--slots is from 1 to 10000, --lease from 1s to 24h", ""},
		"a lease of two days":    {"spoke run --lease 2d", "--slots is from 1 to 10000, --lease from 1s to 24h", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"--data-dir", t.TempDir()}, strings.Fields(tt.line)...)

			s := typed(t, args...)

			require.Equal(t, exitMisuse, s.code, "%s", s.err)
			require.Empty(t, s.out)
			require.True(t, strings.HasPrefix(s.err, "spawnmesh: "+tt.says), "%s", s.err)
			if tt.hint != "" {
				require.Contains(t, s.err, "\n           "+strings.ReplaceAll(tt.hint, "DIR", args[1]))
			}
			if tt.line == "agents -o yaml" || tt.line == "agents -o" || tt.line == "agents --limit" {
				return // they leave no place for another flag
			}
			at := len(args)
			if i := strings.Index(tt.line, " --"); i >= 0 {
				at = 2 + len(strings.Fields(tt.line[:i]))
			}
			s = typed(t, append(append(append([]string{}, args[:at]...), "--json"), args[at:]...)...)
			require.Equal(t, exitMisuse, s.code, "%s", s.err)
			require.Empty(t, s.out)
			var got struct {
				Error struct{ Code, Message, Hint string }
			}
			require.NoError(t, json.Unmarshal([]byte(s.err), &got), "%s", s.err)
			require.Equal(t, string(commands.Validation), got.Error.Code)
			require.Contains(t, got.Error.Message, tt.says)
		})
	}
}

// The exit code and the code that programs read say the same, for every kind of
// error that can reach a person.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		err  error
		code commands.Code
		exit int
	}{
		"a defect":                  {errors.New("oops"), commands.Internal, 1},
		"misuse":                    {misuse("no"), commands.Validation, 2},
		"an ambiguous id":           {commands.Refuse(commands.Ambiguous, "no"), commands.Ambiguous, 2},
		"an unsafe key file":        {&signing.KeyFileError{Path: "k", Why: "is readable by others", Hint: "run: chmod 600 k"}, "KEY_FILE", 2},
		"an unsafe directory":       {fmt.Errorf("looking: %w", &hostfile.UnsafeError{Path: "d", Why: "is writable", Hint: "run: chmod o-w d"}), "HOST_FILE", 2},
		"another user's file":       {&fs.PathError{Op: "open", Path: "instance.lock", Err: fs.ErrPermission}, "FORBIDDEN", 5},
		"a bad token":               {join.ErrToken, commands.Validation, 2},
		"a variable that is bad":    {commands.Refuse(commands.BadEnv, "no"), commands.BadEnv, 2},
		"a question without answer": {commands.Refuse(commands.NoAnswer, "no"), commands.NoAnswer, 11},
		"a task that goes on":       {commands.Refuse(commands.NoResult, "no"), commands.NoResult, 12},
		"a task nobody knows":       {commands.Refuse(commands.UnknownTask, "no"), commands.UnknownTask, 3},
		"an answer to nothing":      {commands.Refuse(commands.ReUnknown, "no"), commands.ReUnknown, 3},
		"a key used otherwise":      {commands.Refuse(commands.Idempotency, "no"), commands.Idempotency, 4},
		"an id used otherwise":      {commands.Refuse(commands.TaskConflict, "no"), commands.TaskConflict, 4},
		"a task that was killed":    {commands.Refuse(commands.Tombstone, "no"), commands.Tombstone, 4},
		"a replaced attempt":        {commands.Refuse(commands.FenceStale, "no"), commands.FenceStale, 4},
		"another result":            {commands.Refuse(commands.ResultClash, "no"), commands.ResultClash, 4},
		"output from elsewhere":     {commands.Refuse(commands.Offset, "no"), commands.Offset, 4},
		"histories that differ":     {commands.Refuse(commands.Resync, "no"), commands.Resync, 4},
		"a revoked key":             {commands.Refuse(signing.KeyRevoked, "no"), signing.KeyRevoked, 5},
		"an unknown token":          {commands.Refuse(commands.Unauthenticated, "no"), commands.Unauthenticated, 5},
		"another host":              {commands.Refuse(commands.Misdirected, "no"), commands.Misdirected, 2},
		"too many requests":         {commands.Refuse(commands.TooManyRequests, "no"), commands.TooManyRequests, 6},
		"an unknown key":            {commands.Refuse(signing.KeyUnknown, "no"), signing.KeyUnknown, 5},
		"a weak key":                {commands.Refuse(signing.KeyWeak, "no"), signing.KeyWeak, 5},
		"the key of another":        {commands.Refuse(signing.KeyDuplicate, "no"), signing.KeyDuplicate, 5},
		"a path that is not open":   {commands.Refuse(commands.BadPath, "no"), commands.BadPath, 6},
		"more than is allowed":      {commands.Refuse(commands.Rate, "no"), commands.Rate, 6},
		"too many answers":          {commands.Refuse(commands.TooMany, "no"), commands.TooMany, 6},
		"no room for more":          {commands.Refuse(commands.Full, "no"), commands.Full, 6},
		"a missing capability":      {commands.Refuse(commands.Capability, "no"), commands.Capability, 7},
		"nothing there":             {commands.Refuse(commands.NotFound, "no"), commands.NotFound, 3},
		"a conflict":                {commands.Refuse(commands.Conflict, "no"), commands.Conflict, 4},
		"a directory in use":        {&postgres.InUseError{Dir: "d", PID: 7}, commands.Conflict, 4},
		"a spoke without a hub":     {spoke.ErrNoHub, commands.Conflict, 4},
		"a fence that is over":      {commands.Refuse(commands.StaleAttempt, "no"), commands.StaleAttempt, 4},
		"a circle":                  {commands.Refuse(commands.Cycle, "no"), commands.Cycle, 4},
		"a grant that is none":      {commands.Refuse(commands.GrantMalformed, "no"), commands.GrantMalformed, 5},
		"an expired grant":          {commands.Refuse(commands.GrantExpired, "no"), commands.GrantExpired, 5},
		"a grant of another key":    {commands.Refuse(commands.GrantKeyUnknown, "no"), commands.GrantKeyUnknown, 5},
		"a grant that is over":      {commands.Refuse(commands.GrantUnknown, "no"), commands.GrantUnknown, 5},
		"a forged grant":            {commands.Refuse(commands.GrantMismatch, "no"), commands.GrantMismatch, 5},
		"inputs that are large":     {commands.Refuse(commands.InputTooLarge, "no"), commands.InputTooLarge, 6},
		"an input that is away":     {commands.Refuse(commands.InputMissing, "no"), commands.InputMissing, 3},
		"a spent budget":            {commands.Refuse(commands.OverBudget, "no"), commands.OverBudget, 6},
		"a closed lane":             {commands.Refuse(commands.LaneClosed, "no"), commands.LaneClosed, 6},
		"what is frozen":            {commands.Refuse(commands.FrozenThere, "no"), commands.FrozenThere, 6},
		"an audit that was changed": {commands.Refuse(commands.AuditBroken, "no"), commands.AuditBroken, 5},
		"a revoked connection":      {commands.Refuse(signing.ConnState, "no"), signing.ConnState, 5},
		"a bad signature":           {&signing.Rejected{Code: signing.SigBad, Why: "no"}, signing.SigBad, 5},
		"another user":              {commands.Refuse("FORBIDDEN", "no"), "FORBIDDEN", 5},
		"a hub with another key":    {transport.ErrPin, "PIN_MISMATCH", 5},
		"a proof that fails":        {join.ErrHandshake, "HANDSHAKE_BAD", 5},
		"a hub that refuses":        {transport.ErrRefused, "JOIN_REFUSED", 5},
		"a policy":                  {commands.Refuse(commands.Policy, "no"), commands.Policy, 6},
		"a grant":                   {commands.Refuse(commands.Grant, "no"), commands.Grant, 6},
		"nothing that can run it":   {commands.Refuse(commands.NoSpoke, "no"), commands.NoSpoke, 7},
		"an instance that is away":  {commands.Refuse(commands.Unreachable, "no"), commands.Unreachable, 8},
		"a database that is away":   {commands.Refuse(commands.StoreDown, "no"), commands.StoreDown, 8},
		"no Postgres at all":        {&postgres.NotFoundError{}, commands.StoreDown, 8},
		"a hub that is away":        {transport.ErrUnavailable, commands.Unreachable, 8},
		"an instance not ready":     {commands.Refuse(commands.NotReady, "no"), commands.NotReady, 8},
		"messages sent again":       {commands.Refuse(commands.StreamLoss, "no"), commands.StreamLoss, 8},
		"no answer in time":         {context.DeadlineExceeded, commands.Unreachable, 8},
		"another method":            {commands.Refuse(commands.MethodNotAllowed, "no"), commands.MethodNotAllowed, 2},
		"another type of body":      {commands.Refuse(commands.UnsupportedMedia, "no"), commands.UnsupportedMedia, 2},
		"too large a body":          {commands.Refuse(commands.PayloadTooLarge, "no"), commands.PayloadTooLarge, 2},
		"a body that stops":         {commands.Refuse(commands.RequestTimeout, "no"), commands.RequestTimeout, 2},
		"an interrupt":              {commands.Refuse(control.Interrupted, "no"), control.Interrupted, 130},
	}
	covered := map[string]bool{}
	for name, tt := range tests {
		covered[string(tt.code)] = true
		for _, err := range []error{tt.err, fmt.Errorf("doing it: %w", tt.err)} {
			var text, object bytes.Buffer
			require.Equal(t, tt.exit, (&app{err: &text}).printError(err), name)
			require.Equal(t, tt.exit, (&app{err: &object, json: true}).printError(err), name)
			require.Contains(t, text.String(), "spawnmesh: "+err.Error(), name)
			var got struct {
				Error struct{ Code, Message string }
			}
			require.NoError(t, json.Unmarshal(object.Bytes(), &got), name)
			require.Equal(t, string(tt.code), got.Error.Code, name)
			require.Equal(t, err.Error(), got.Error.Message, name)
		}
	}
	for name, code := range codesOf(t, "../../commands/refused.go") {
		require.True(t, covered[code], "which exit code has %s?", name)
	}
}

// codesOf returns the codes that a file declares, by their names.
func codesOf(t *testing.T, file string) map[string]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	codes := map[string]string{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if ok && len(v.Values) == 1 {
			if lit, ok := v.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
				code, err := strconv.Unquote(lit.Value)
				require.NoError(t, err)
				codes[v.Names[0].Name] = code
			}
		}
		return true
	})
	require.Equal(t, string(commands.Internal), codes["Internal"])
	return codes
}

// What cannot be a data directory is not replaced by another one.
func TestWhatIsNoDataDirectory(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for dir, says := range map[string]string{"": "--data-dir is empty\n", file: file + " is a file, and an instance lives in a directory\n"} {
		for _, line := range []string{"agents", "hub run --link 127.0.0.1:0", "backlog list", "doctor"} {
			s := typed(t, append([]string{"--data-dir", dir}, strings.Fields(line)...)...)

			require.Equal(t, exitMisuse, s.code, "%s: %s", line, s.err)
			require.Contains(t, s.err, says, line)
		}
	}
}

func TestADatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	ctx, done := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer done()

	dir := filepath.Join(t.TempDir(), "H")
	s := typedWith(ctx, map[string]string{"DATABASE_URL": "postgres://nobody@127.0.0.1:1/none"}, "--data-dir", dir, "hub", "run", "--link", "127.0.0.1:0")

	require.Equal(t, exitUnreachable, s.code, "%s", s.err)
	require.Contains(t, s.err, "the database that DATABASE_URL names does not answer; it is tried again\" at_most=20s", "nobody waits without knowing for what")
	require.Contains(t, s.err, "is the server that DATABASE_URL names running")
	require.NoDirExists(t, dir)
	s = typedWith(t.Context(), map[string]string{"DATABASE_URL": "postgres://nobody:hunter2@127.0.0.1:port/none"}, "--data-dir", dir, "backlog", "create", "--title", "x")
	require.Equal(t, exitMisuse, s.code, "%s", s.err)
	require.Contains(t, s.err, "spawnmesh: DATABASE_URL cannot be read")
	require.NotContains(t, s.err, "hunter2")
	require.NoDirExists(t, dir)
	gone, stop := context.WithCancel(t.Context())
	stop()
	s = typedWith(gone, nil, "--data-dir", t.TempDir(), "hub", "run", "--link", "127.0.0.1:0")
	require.Equal(t, exitInterrupted, s.code, "%s", s.err)
}

// Only what creates something makes an instance; what reads or changes one refuses
// a directory that has none, and makes nothing there.
func TestNothingIsMadeByAsking(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "mistyped")
	for _, line := range []string{"backlog list", "backlog list --ready-only", "backlog show A1", "backlog stats", "backlog why A1", "backlog audit", "audit list", "backlog claim", "backlog reclaim",
		"backlog complete A1", "retention", "retention tasks 7d", "budget list", "budget show b", "quota list", "lane list", "lane pause l --reason x", "freeze list",
		"freeze --scope workspace --reason x", "backlog grant rotate"} {
		for _, env := range []map[string]string{nil, {"DATABASE_URL": "postgres://nobody@127.0.0.1:1/none"}} {
			s := typedWith(t.Context(), env, append([]string{"--data-dir", dir}, strings.Fields(line)...)...)

			require.Equal(t, said{"", "spawnmesh: there is no instance in " + dir + "\n           name another --data-dir; who makes one: backlog create, hub run, spoke join\n", exitNotFound}, s, line)
			require.NoDirExists(t, dir, line)
		}
	}
}

// A hint names the instance that it is about, as a shell takes it.
func TestHintsCanBePasted(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "it's a b")
	self := "spawnmesh --data-dir " + commands.ShellLine([]string{dir})
	tests := map[string]struct{ line, hint string }{
		"nothing is there":   {"agents", "begin with: " + self + " hub run"},
		"no hub yet":         {"spoke run", "join one with the token that its operator made: " + self + " spoke join --token-file FILE"},
		"no policy":          {"spoke policy test -- echo hi", "write one to edit: " + self + " spoke policy init --preset commands"},
		"no command":         {"spawn", self + " hub run"},
		"nothing to change":  {"connections grant lab", "to see the grant: " + self + " connections show lab"},
		"nothing to freeze":  {"freeze --scope workspace", "as in: " + self + " freeze --scope workspace --reason WHY"},
		"half of a budget":   {"budget create b", "as in: " + self + " budget create monthly --dimension usd --hard 100"},
		"half, in workspace": {"budget create b --workspace w", "as in: " + self + " budget create monthly --dimension usd --hard 100 --workspace w"},
	}
	for name, tt := range tests {
		s := typed(t, append([]string{"--data-dir", dir}, strings.Fields(tt.line)...)...)

		require.NotZero(t, s.code, name)
		require.True(t, strings.HasSuffix(s.err, tt.hint+"\n"), "%s: %s", name, s.err)
	}
	require.NoDirExists(t, filepath.Join(dir, "keys"))
}

func TestWhereTheDataIs(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		flag string
		env  map[string]string
		want string
	}{
		"the flag first":       {"/a", map[string]string{"SPAWNMESH_DATA_DIR": "/b"}, "/a"},
		"then the environment": {"", map[string]string{"SPAWNMESH_DATA_DIR": "/b", "XDG_STATE_HOME": "/c"}, "/b"},
	}
	if os.Geteuid() == 0 {
		tests["for root"] = tests["then the environment"]
		tests["for root"] = struct {
			flag string
			env  map[string]string
			want string
		}{"", map[string]string{"XDG_STATE_HOME": "/c"}, "/var/lib/spawnmesh"}
	}
	for name, tt := range tests {
		a := &app{dataDir: tt.flag, getenv: func(name string) string { return tt.env[name] }}
		dir, err := a.dir()
		require.NoError(t, err, name)
		require.Equal(t, tt.want, dir, name)
	}
}

// The help of what ends something says what ends, and what has to be given.
func TestWhatEndsIsSaid(t *testing.T) {
	t.Parallel()
	tests := map[string][]string{
		"connections suspend": {"What the spoke has\naccepted it starts and runs all the same", "At a spoke the link stays", "suspend attic --reason 'holiday'", "record WHY (required)"},
		"connections resume":  {"resume attic\n", "record WHY\n"},
		"connections revoke":  {"Running agents are killed", "queued is\ndropped", "revoke attic --reason 'the host was sold'", "record WHY (required)"},
		"keys revoke":         {"revoke current --reason 'the disk was copied'", "agents and\nconnections go on", "record WHY (required)"},
		"hub run":             {"(default 30d)"},
	}
	for line, parts := range tests {
		s := typed(t, append(strings.Fields(line), "--help")...)
		for _, part := range parts {
			require.Contains(t, s.out, part, line)
		}
	}
}

func TestDurations(t *testing.T) {
	t.Parallel()
	good := map[string]struct {
		want time.Duration
		text string
	}{
		"90s": {90 * time.Second, "1m30s"}, "15m": {15 * time.Minute, "15m"}, "2h": {2 * time.Hour, "2h"}, "7d": {7 * 24 * time.Hour, "7d"}, "24h": {24 * time.Hour, "1d"},
		"0s": {0, "0"}, "300ms": {300 * time.Millisecond, "300ms"}, "1h30m": {90 * time.Minute, "1h30m"}, "10s": {10 * time.Second, "10s"}, "100m": {100 * time.Minute, "1h40m"},
	}
	for text, tt := range good {
		var d days
		require.NoError(t, d.Set(text), text)
		require.Equal(t, tt.want, time.Duration(d), text)
		require.Equal(t, tt.text, d.String())
	}
	for _, text := range []string{"", "d", "7", "-1s", "-7d", "1.5d", "1h7d", "soon", "99999999999d", "7dd"} {
		require.Error(t, new(days).Set(text), text)
	}
}

// What comes from elsewhere cannot move the cursor, nor turn what is read.
func TestForeignTextIsHarmless(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a\tb\n", printable("a\tb\n"))
	require.Equal(t, "·[31mred·[0m", printable("\x1b[31mred\x1b[0m"))
	require.Equal(t, "safe·exe.txt", printable("safe\u202eexe.txt"))
	require.Equal(t, "··", printable("\r\u009b"))
	require.Equal(t, "··", printable("\u2028\u2029"))
	require.Equal(t, "größer 日本", printable("größer 日本"))
}

// JSON that is shown says the same, and has nothing raw that a terminal would obey.
func TestJSONIsHarmless(t *testing.T) {
	t.Parallel()
	text := "größer 日本 😀\t\n\x1b[2J\x7f\u009b31m\u202eexe\u2066\u061c\u2028\u2029"
	raw := json.RawMessage(`{"t":"` + "\u009b\u202e\u2028" + `"}`)
	for _, output := range []string{"json", "ndjson"} {
		var out, errs bytes.Buffer
		a := &app{out: &out, err: &errs, output: output}
		v := []any{text, raw}
		require.NoError(t, a.print(v, []any{v}, table{}))
		a.printError(commands.Refuse(commands.NotFound, "%s", text))

		require.Equal(t, out.String()+errs.String(), printable(out.String()+errs.String()), output)
		require.NotContains(t, out.String()+errs.String(), "\t")
		require.Contains(t, out.String(), "größer 日本 😀")
		var got []any
		require.NoError(t, json.Unmarshal(out.Bytes(), &got))
		require.Equal(t, []any{text, map[string]any{"t": "\u009b\u202e\u2028"}}, got)
		var said struct{ Error struct{ Message string } }
		require.NoError(t, json.Unmarshal(errs.Bytes(), &said))
		require.Equal(t, text, said.Error.Message)
	}
}

func TestTablesLineUp(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	a := &app{out: &out, output: "table"}
	rows := [][]string{{"NAME", "WHY", "LAST"}, {"größer", "", "x"}, {"a", "two\nlines\tand a tab", ""}, {"日本", "\x1b[2J", "y"}}

	require.NoError(t, a.align(rows, 0))

	require.Equal(t, "NAME    WHY                  LAST\ngrößer                       x\na       two lines and a tab\n日本    ·[2J                 y\n", out.String())
	require.Equal(t, "größer", shorten("größer", 6))
	require.Equal(t, "größ…", shorten("größer", 5))
	require.Equal(t, "größer", shorten("größer", 0))
}

func TestVersionAndCompletion(t *testing.T) {
	t.Parallel()
	require.Regexp(t, `^spawnmesh \S+ \(go\S+, \w+/\w+\)\n$`, typed(t, "version").out)
	var v map[string]string
	require.NoError(t, json.Unmarshal([]byte(typed(t, "version", "-o", "json").out), &v))
	require.Equal(t, v["version"]+"\n", typed(t, "-o", "name", "version").out)
	require.Equal(t, 1, strings.Count(typed(t, "-o", "ndjson", "version").out, "\n"))
	require.Equal(t, typed(t, "version"), typed(t, "version", "--no-color"), "no colours where there is no terminal")
	for shell, part := range map[string]string{"bash": "__start_spawnmesh", "zsh": "#compdef spawnmesh", "fish": "complete -c spawnmesh", "powershell": "Register-ArgumentCompleter"} {
		s := typed(t, "completion", shell)
		require.Zero(t, s.code, shell)
		require.Contains(t, s.out, part)
	}
	require.Contains(t, typed(t, "__complete", "connections", "s").out, "suspend")
}
