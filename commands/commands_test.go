package commands

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/signing"
)

// The whole table of the model, row by row: what it allows and, for every pair
// of states and every trigger, nothing else.
func TestTransitionTable(t *testing.T) {
	want := map[Trigger]string{
		ByClaim: "queued>claimed", ByStart: "claimed>running", ByLoss: "claimed>queued running>queued queued>awaiting_input",
		ByNoStart: "claimed>unavailable", ByUnavailable: "queued>unavailable awaiting_input>unavailable paused>unavailable blocked>unavailable",
		ByQuestion: "running>awaiting_input", ByAnswer: "awaiting_input>running awaiting_input>queued",
		ByPause: "queued>paused running>paused", ByResume: "paused>queued paused>running",
		ByBlock:   "queued>blocked claimed>blocked awaiting_input>blocked",
		ByUnblock: "blocked>queued", ByDelivery: "queued>in_review claimed>in_review running>in_review", ByDone: "claimed>completed running>completed",
		ByOperator: "queued>completed claimed>completed awaiting_input>completed paused>completed blocked>completed",
		ByRelease:  "claimed>queued running>queued",
		ByChanges:  "in_review>running in_review>queued", ByApproval: "in_review>approved",
		ByMerge: "approved>completed", ByConflict: "approved>running approved>queued",
		ByFailure:   "queued>failed claimed>failed running>failed awaiting_input>failed paused>failed blocked>failed in_review>failed approved>failed",
		ByCancel:    "queued>cancelled awaiting_input>cancelled paused>cancelled blocked>cancelled",
		ByCancelled: "claimed>cancelled running>cancelled awaiting_input>cancelled in_review>cancelled approved>cancelled",
		ByExpiry:    "queued>expired claimed>expired running>expired awaiting_input>expired paused>expired in_review>expired approved>expired",
		ByRetry:     "failed>queued unavailable>queued expired>queued cancelled>queued",
	}
	for by, list := range want {
		for _, from := range States {
			for _, to := range States {
				allowed := strings.Contains(" "+list+" ", fmt.Sprintf(" %s>%s ", from, to))
				require.Equal(t, allowed, May(from, to, by), "%s: %s > %s", by, from, to)
			}
		}
	}
	for _, tr := range Transitions {
		require.Contains(t, want, tr.By)
		if tr.From.Terminal() {
			require.Equal(t, ByRetry, tr.By, "only a retry leads out of %s", tr.From)
		}
	}
	require.False(t, May(Completed, Queued, ByRetry), "a success is never run again")
}

func TestEveryStateIsReachableAndLeadsToAnEnd(t *testing.T) {
	reached := map[State]bool{Queued: true}
	for range States {
		for _, tr := range Transitions {
			if reached[tr.From] {
				reached[tr.To] = true
			}
		}
	}
	for _, s := range States {
		require.True(t, reached[s], "%s", s)
		require.True(t, s.Terminal() || May(s, Failed, ByFailure), "%s", s)
	}
}

// Codes and reasons are stored and cross the wire: changing this list breaks
// peers. Add at the end of the groups, never rename.
func TestCodesNeverChange(t *testing.T) {
	got := []Code{Validation, BadEnv, BadPath, Policy, Grant, Capability, UnknownTask, TaskConflict, Tombstone, Rate, Full,
		ReUnknown, FenceStale, ResultClash, TooMany, Offset, Idempotency, NotFound, Conflict, Ambiguous, NoSpoke, Unreachable, StoreDown,
		StaleAttempt, Cycle, OverBudget, LaneClosed, GrantMalformed, GrantExpired, GrantKeyUnknown, GrantUnknown, GrantMismatch, StreamLoss, Internal}
	want := "VALIDATION BAD_ENV PATH POLICY GRANT CAPABILITY UNKNOWN_TASK TASK_CONFLICT TOMBSTONE RATE FULL RE_UNKNOWN FENCE_STALE " +
		"RESULT_CONFLICT TOO_MANY OFFSET IDEMPOTENCY NOT_FOUND CONFLICT AMBIGUOUS NO_SPOKE UNREACHABLE STORE " +
		"STALE_ATTEMPT DEPENDENCY_CYCLE OVER_BUDGET LANE_CLOSED GRANT_MALFORMED GRANT_EXPIRED GRANT_KEY_UNKNOWN GRANT_UNKNOWN GRANT_MISMATCH STREAM_LOSS INTERNAL"
	require.Equal(t, "["+want+"]", fmt.Sprint(got))
	require.Equal(t, "[executor_busy permission_required deadline_elapsed capability_missing cancel_requested kill_requested "+
		"merge_conflict dependency_failed dependency_cycle lease_expired executor_died retries_exhausted reclaims_exhausted "+
		"budget_exceeded quota_exceeded limit link_down link_revoked grant_denied policy_denied command_expired frozen operator idle_timeout oom_killed cpu_limit process_limit disk_limit output_limit id_used overrun result_unknown waiting_input input_missing]", fmt.Sprint(Reasons))
}

const task = "0193a3c0-2222-7aaa-8bbb-00000000000a"

func good() *Spawn { return &Spawn{Task: task, Runtime: RuntimeExec, Argv: []string{"echo", "hi"}} }

func TestSpawnValidation(t *testing.T) {
	many := append([]string{"a"}, make([]string, 9999)...)
	tests := map[string]struct {
		change func(*Spawn)
		code   Code
	}{
		"as it should be":           {func(s *Spawn) {}, ""},
		"shell metacharacters":      {func(s *Spawn) { s.Argv = []string{"echo", "$(id); rm -rf /"} }, ""},
		"noop":                      {func(s *Spawn) { s.Runtime, s.Argv = RuntimeNoop, nil }, ""},
		"noop with a command":       {func(s *Spawn) { s.Runtime = RuntimeNoop }, Validation},
		"upper-case task":           {func(s *Spawn) { s.Task = strings.ToUpper(task) }, Validation},
		"no task":                   {func(s *Spawn) { s.Task = "" }, Validation},
		"unknown runtime":           {func(s *Spawn) { s.Runtime = "docker" }, Validation},
		"no argv":                   {func(s *Spawn) { s.Argv = nil }, Validation},
		"empty argv 0":              {func(s *Spawn) { s.Argv = []string{""} }, Validation},
		"NUL in argv":               {func(s *Spawn) { s.Argv = []string{"a", "b\x00"} }, Validation},
		"invalid UTF-8 in argv":     {func(s *Spawn) { s.Argv = []string{"a", "\xff"} }, Validation},
		"4096 arguments":            {func(s *Spawn) { s.Argv = many[:MaxArgs] }, ""},
		"4097 arguments":            {func(s *Spawn) { s.Argv = many[:MaxArgs+1] }, Validation},
		"10,000 arguments":          {func(s *Spawn) { s.Argv = many }, Validation},
		"128 KiB of arguments":      {func(s *Spawn) { s.Argv = []string{"a", strings.Repeat("x", MaxArgBytes)} }, Validation},
		"newline in the title":      {func(s *Spawn) { s.Title = "a\nb" }, Validation},
		"title of 257 bytes":        {func(s *Spawn) { s.Title = strings.Repeat("x", 257) }, Validation},
		"priority 101":              {func(s *Spawn) { s.Priority = 101 }, Validation},
		"negative timeout":          {func(s *Spawn) { s.TimeoutMS = -1 }, Validation},
		"timeout of 10^12 ms":       {func(s *Spawn) { s.TimeoutMS = 1e12 }, Validation},
		"an unknown loss":           {func(s *Spawn) { s.OnLoss = "again" }, Validation},
		"a trace in capitals":       {func(s *Spawn) { s.Trace = strings.ToUpper(traceExample) }, Validation},
		"a trace of version 01":     {func(s *Spawn) { s.Trace = "01" + traceExample[2:] }, Validation},
		"a trace of zeros":          {func(s *Spawn) { s.Trace = "00-" + strings.Repeat("0", 32) + "-b7ad6b7169203331-01" }, Validation},
		"a span of zeros":           {func(s *Spawn) { s.Trace = traceExample[:36] + strings.Repeat("0", 16) + "-01" }, Validation},
		"retries -1":                {func(s *Spawn) { s.MaxRetries = -1 }, Validation},
		"retries 10^9":              {func(s *Spawn) { s.MaxRetries = 1e9 }, Validation},
		"env name with =":           {func(s *Spawn) { s.Env = []EnvVar{{"A=B", ""}} }, BadEnv},
		"env without values":        {func(s *Spawn) { s.Env = []EnvVar{{"A", ""}} }, BadEnv},
		"values without env":        {func(s *Spawn) { s.Env, s.Sealed = nil, sealedExample() }, BadEnv},
		"a sealed key that is none": {func(s *Spawn) { s.Env, s.Sealed = []EnvVar{{"A", ""}}, sealedExample(); s.Sealed.Key = "ed25519:x" }, BadEnv},
		"a box of 49 bytes": {func(s *Spawn) {
			s.Env, s.Sealed = []EnvVar{{"A", ""}}, sealedExample()
			s.Sealed.Box = make([]byte, 49)
		}, BadEnv},
		"a mark of 31 bytes": {func(s *Spawn) {
			s.Env, s.Sealed = []EnvVar{{"A", ""}}, sealedExample()
			s.Sealed.Mark = make([]byte, 31)
		}, BadEnv},
		"env as nothing known":    {func(s *Spawn) { s.Env = []EnvVar{{"A", "stdin"}} }, BadEnv},
		"a file that climbs":      {func(s *Spawn) { s.Env = []EnvVar{{"../A", EnvFile}} }, BadEnv},
		"lower-case twin":         {func(s *Spawn) { s.Env = []EnvVar{{"PATHX", ""}, {"pathx", ""}} }, BadEnv},
		"no text as a directory":  {func(s *Spawn) { s.Dir = "/cl\uFFFD" }, BadPath},
		"no text as an env name":  {func(s *Spawn) { s.Env, s.Sealed = []EnvVar{{"A\uFFFD", ""}}, sealedExample() }, BadEnv},
		"NUL in the directory":    {func(s *Spawn) { s.Dir = "/a\x00" }, BadPath},
		"capability with a space": {func(s *Spawn) { s.Capabilities = []string{"a b"} }, Validation},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := good()
			tt.change(s)
			require.Equal(t, tt.code, CodeOf(s.Validate()))
		})
	}
}

func TestEveryKindHasItsBody(t *testing.T) {
	for kind, k := range kinds {
		require.Equal(t, kind, k.body().Kind())
	}
}

func open2(t *testing.T, typ signing.Type, kind Kind, body any) signing.Opened {
	t.Helper()
	key, err := signing.NewSigner(make([]byte, 32))
	require.NoError(t, err)
	raw, err := signing.EncodeBody(body)
	if b, ok := body.(Body); ok {
		raw, err = EncodeBody(b)
	}
	require.NoError(t, err)
	self := signing.InstanceIDOf(key.Public())
	h := signing.Header{ID: task, Kind: string(kind), Iss: self, Aud: self, Conn: task, Epoch: 1, Seq: 1, Iat: 1, Exp: 2, Wsp: "main"}
	if typ == signing.Receipt || typ == signing.Result || typ == signing.Event {
		h.Re = &signing.Ref{ID: task, SHA256: strings.Repeat("0", 64)}
	}
	sealed, err := key.Seal(typ, h, raw)
	require.NoError(t, err)
	v := signing.Verifier{Self: self, Conn: task, Epoch: 1, Keys: map[signing.KeyID]signing.PeerKey{
		key.KeyID(): {ID: key.KeyID(), Owner: self, Public: key.Public()}}}
	if typ == signing.KeySet {
		v.Identity = key.KeyID()
	}
	o, err := v.Open(sealed.Envelope, time.UnixMilli(1))
	require.NoError(t, err)
	return o
}

func TestParse(t *testing.T) {
	tests := map[string]struct {
		typ  signing.Type
		kind Kind
		body any
		want Code
	}{
		"a spawn":                   {signing.Command, SpawnKind, good(), ""},
		"a result as a command":     {signing.Command, ResultKind, good(), signing.HdrField},
		"a command as a receipt":    {signing.Receipt, SpawnKind, good(), signing.HdrField},
		"a kind nobody knows":       {signing.Command, "agent.dance", good(), signing.HdrField},
		"a spawn with other fields": {signing.Command, SpawnKind, map[string]int{"x": 1}, signing.BodyJSON},
		"a kill without a reason":   {signing.Command, KillKind, Kill{Task: task}, Validation},
		"a result that is not one":  {signing.Result, ResultKind, Result{Task: task, State: Running}, Validation},
		"an end that is one":        {signing.Receipt, EndedKind, Ended{Task: task, Attempt: 1, State: Failed}, Validation},
		"attempt 0":                 {signing.Receipt, StartedKind, Started{Task: task}, Validation},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(open2(t, tt.typ, tt.kind, tt.body))

			require.Equal(t, tt.want, CodeOf(err), "%v", err)
			if err == nil {
				require.True(t, reflect.DeepEqual(tt.body, got.Body))
			}
		})
	}
}

const traceExample = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
